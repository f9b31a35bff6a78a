#!/usr/bin/env bash
# Computes the p-values in results/ again, from the translations there and the references that the recipes prepare:
#   bash docs/data/p_values.sh [OPTIONS OF recipes/multi30k/run.sh, such as --source DIR]
set -euo pipefail
unset CDPATH
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/env.sh

bash recipes/quickstart/run.sh --stages download,prepare
bash recipes/quickstart/run.sh --conf short --stages download,prepare
bash recipes/multi30k/run.sh --stages download,prepare --pair en-de "$@"
bash recipes/multi30k/run.sh --stages download,prepare --pair en-fr "$@"
bash recipes/multi30k/run.sh --conf short --stages download,prepare "$@"

# compare DIRECTORY FILE [OPTIONS]: writes results/DIRECTORY/FILE
compare() {
    local file="results/$1/$2"
    "$PYTHON" scripts/compare.py "results/$1" --data-dir data --format csv --baseline sinusoidal "${@:3}" >"$file.tmp"
    mv "$file.tmp" "$file"
}

compare quickstart compare.csv
compare quickstart-short compare.csv
compare multi30k/en-de compare.csv --seeds 1,2,3 --all-tests
compare multi30k/en-de compare-shaw-k16.csv --seeds 1,2,3 --all-tests --baseline shaw-k16
compare multi30k/en-de compare-seed1.csv --seeds 1 --all-tests
compare multi30k/en-fr compare.csv --seeds 1 --all-tests
compare multi30k-short/en-de compare.csv --seeds 1 --all-tests
