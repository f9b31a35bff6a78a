#!/usr/bin/env bash
# Runs the iwslt14 recipe; see --help.
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh" run iwslt14 "$@"
