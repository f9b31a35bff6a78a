#!/usr/bin/env bash
# What every recipe's run.sh and table.sh do: sets the environment up, and hands the recipe's name and the options to a program.
#
#   start.sh PROGRAM RECIPE [options]
set -euo pipefail

program=$1
recipe=$2
shift 2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/env.sh
source "$root/scripts/env.sh"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$PYTHON" -m "$program" --recipe "$root/recipes/$recipe" "$@"
