#!/usr/bin/env bash
# Runs every check of the project: ruff, import-linter, shellcheck, mypy and pytest. All of them run, even if one
# fails; the script fails if any of them did. The first run sets up the environment (see scripts/env.sh).
#
#   bash scripts/test.sh [arguments for pytest]
#
#   bash scripts/test.sh                            what CI runs
#   bash scripts/test.sh --quick                    the same without the tests marked `long`, such as trainings
#   bash scripts/test.sh -m slow                    only the slow tests, which run only if asked for
#   bash scripts/test.sh -m "slow or not slow"      all tests
#   bash scripts/test.sh tests/encodings/test_encodings.py -k shaw
#   bash scripts/test.sh -n 0                       tests in this process, not in one for each core (at most 4)
set -euo pipefail

if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then
    sed -n '2,/^set /{s/^# \{0,1\}//p}' "$0"
    exit
fi
if [[ "${1:-}" == --quick ]]; then
    shift
    set -- -m "not slow and not long" "$@"
fi
# Tests must import this repository's code, not code from paths that the shell exports.
unset CDPATH PYTHONPATH PYTHONSAFEPATH
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/env.sh
source scripts/env.sh

cores=$(nproc) # before OMP_NUM_THREADS is set, which limits nproc's number
# Tensors in tests are tiny: several threads would only wait for each other.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

shopt -s nullglob
shell_files=(.ci/run scripts/*.sh recipes/*/*.sh recipes/*/*.sbatch)
summary=()
failures=0

# step NAME COMMAND...: runs a check, and adds its outcome and time to the summary.
step() {
    local name="$1" started="$SECONDS" outcome=passed
    shift
    printf '\n== %s\n' "$name"
    "$@" || {
        outcome=FAILED
        failures=$((failures + 1))
    }
    summary+=("$(printf '%-12s %s in %d s' "$name" "$outcome" "$((SECONDS - started))")")
}

step ruff "$PYTHON" -m ruff check .
step format "$PYTHON" -m ruff format --check .
step imports "$(dirname "$PYTHON")/lint-imports"
step shellcheck "$(dirname "$PYTHON")/shellcheck" -x "${shell_files[@]}"
step mypy "$PYTHON" -m mypy
# Each process gets whole files, because the tests of a file share trained models.
step pytest "$PYTHON" -m pytest -n "$((cores < 4 ? cores : 4))" --dist loadfile --no-loadscope-reorder "$@"

printf '\n'
printf '%s\n' "${summary[@]}"
((failures == 0))
