#!/usr/bin/env bash
# Compares encodings on the user's own text; without arguments, prints how to call it.
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh" own own "$@"
