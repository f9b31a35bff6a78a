#!/usr/bin/env bash
# Runs the quickstart recipe; see --help. Its models are so small that a CPU core per experiment (--jobs 0) is fastest.
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh" run quickstart --jobs 0 "$@"
