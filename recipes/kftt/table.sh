#!/usr/bin/env bash
# Trains, scores and prints a table of the kftt recipe (recipes/kftt/tables/); see --help.
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh" table kftt "$@"
