#!/usr/bin/env bash
# Trains, scores and prints a table of the wmt14 recipe (recipes/wmt14/tables/); see --help.
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh" table wmt14 "$@"
