#!/usr/bin/env bash
# What every recipe's table.sh does: sets the environment up and hands its own name and the options to the runner.
set -euo pipefail

corpus=$1
shift
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/env.sh
source "$root/scripts/env.sh"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$PYTHON" -m recipes.common.table --recipe "$root/recipes/$corpus" "$@"
