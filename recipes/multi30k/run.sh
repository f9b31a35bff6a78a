#!/usr/bin/env bash
# Runs the multi30k recipe; see --help.
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh" recipes.common multi30k "$@"
