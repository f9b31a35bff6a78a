#!/usr/bin/env bash
# What every recipe's run.sh and table.sh do: sets the environment up, and hands the recipe and the options to a command.
#
#   start.sh COMMAND RECIPE [options]
set -euo pipefail

command=$1
recipe=$2
shift 2
unset CDPATH
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/env.sh
source "$root/scripts/env.sh"
# This Python and those that it starts take the code of this repository, wherever they are started: nothing is looked up
# in the current directory, which empty and relative entries of PYTHONPATH mean, too.
export PYTHONSAFEPATH=1
path=$root
IFS=: read -ra entries <<<"${PYTHONPATH:-}"
for entry in "${entries[@]}"; do
    [[ "$entry" != /* ]] || path+=:$entry
done
export PYTHONPATH=$path
exec "$PYTHON" -m posenc_experiments "$command" --recipe "$root/recipes/$recipe" \
    --data-dir "$root/data" --output-dir "$root/output" "$@"
