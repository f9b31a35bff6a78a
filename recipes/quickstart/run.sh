#!/usr/bin/env bash
# Runs the quickstart recipe; see --help.
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/../common/run.sh" quickstart "$@"
