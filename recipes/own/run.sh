#!/usr/bin/env bash
# Compares encodings on somebody's own text; without arguments it says how.
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh" own own "$@"
