#!/usr/bin/env bash
# Runs the wmt18 recipe; see --help.
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh" run wmt18 --conf diet "$@"
