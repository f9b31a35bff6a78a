#!/usr/bin/env bash
# Trains, scores and prints a table of the iwslt14 recipe (recipes/iwslt14/tables/); see --help.
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh" table iwslt14 "$@"
