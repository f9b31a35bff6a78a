#!/usr/bin/env bash
# Runs the multi30k recipe; see --help.
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/../common/run.sh" multi30k "$@"
