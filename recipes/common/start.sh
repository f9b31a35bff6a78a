#!/usr/bin/env bash
# Called by every run.sh and table.sh: sets up the environment, and runs a command with the recipe and the options.
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
# This Python and its child processes import the code of this repository, and nothing from the current directory, which
# empty and relative entries of PYTHONPATH would stand for.
export PYTHONSAFEPATH=1
path=$root
IFS=: read -ra entries <<<"${PYTHONPATH:-}"
for entry in "${entries[@]}"; do
    [[ "$entry" != /* ]] || path+=:$entry
done
export PYTHONPATH=$path
# The command `own` knows its recipe.
[[ "$command" == own ]] || set -- "$recipe" "$@"
exec "$PYTHON" -m posenc_experiments "$command" --data-dir "$root/data" --output-dir "$root/output" "$@"
