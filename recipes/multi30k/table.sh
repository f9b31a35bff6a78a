#!/usr/bin/env bash
# Trains, scores and prints a table of the multi30k recipe (recipes/multi30k/tables/); see --help.
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh" table multi30k "$@"
