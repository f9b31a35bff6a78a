#!/usr/bin/env bash
# Tests and measures this checkout on a machine with a GPU, which needs no network: tests marked gpu, speed and memory of
# all encodings beside stock fairseq, and the quickstart. Writes into OUT as it goes, so that a part that is cut off
# keeps what it has measured; a part that fails does not stop the next.
#   bash scripts/check_gpu.sh OUT [--minutes 10] [--wheels DIR] [--device cuda]
# The machine has Python 3.12 and PyTorch 2.11 or later (python3, or $PYTHON), with pandas, matplotlib, pytest and the like.
# What else it lacks is installed from the wheels in DIR into a temporary folder. With a network, these collect them:
#   pip download --python-version 3.12 --only-binary=:all: --no-deps -d DIR \
#       've-fairseq==0.12.3' 'hydra-core==1.3.8' 'omegaconf==2.3.0' bitarray msgspec sacremoses submitit tensorboardX
#   pip wheel --no-deps -w DIR 'antlr4-python3-runtime==4.9.3' subword-nmt
# --device cpu goes through all of it on a CPU at tiny sizes, with the tests of one encoding, to try the script.
set -euo pipefail

unset CDPATH
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
usage() { sed -n '2,/^set/{/^#/p}' "${BASH_SOURCE[0]}" && exit "$1"; }
out="" minutes=10 wheels="" device=cuda
while (($#)); do
    case "$1" in
        --minutes | --wheels | --device) (($# > 1)) || usage 2 >&2 && declare "${1#--}=$2" && shift 2 ;;
        -h | --help) usage 0 ;;
        -*) usage 2 >&2 ;;
        *) [[ -z "$out" ]] || usage 2 >&2 && out="$1" && shift ;;
    esac
done
[[ -n "$out" && "$minutes" =~ ^[1-9][0-9]*$ && "$device" =~ ^(cuda|cpu)$ ]] || usage 2 >&2
mkdir -p "$out"
out="$(cd "$out" && pwd -P)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python="$(realpath -s "$(command -v "${PYTHON:-python3}")")"
[[ -z "$wheels" ]] ||
    "$python" -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "$wheels"/*.whl
export PYTHONPATH="$work/site:$root" PYTHONUNBUFFERED=1 FAIRSEQ_POSENC_TEST_DEVICE="$device"
cd "$root"
[[ "$device" == cpu ]] || "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || {
    echo "check_gpu: PyTorch of $python finds no GPU: give --device cpu to try the script." >&2
    exit 1
}

rm -f "$out"/{log,tests,quickstart}.txt # of an earlier call
summary=()
failures=0
# part NAME SECONDS FILE COMMAND...: runs a command for at most so many seconds and what is left of all minutes, and
# appends its output to the file.
part() {
    local name="$1" limit="$2" file="$out/$3" left=$((minutes * 60 - SECONDS)) started="$SECONDS" code=0 outcome=passed
    shift 3
    ((limit < left)) || limit="$left"
    if ((limit < 5)); then
        outcome="left out"
    else
        timeout --kill-after=5 "$limit" "$@" >>"$file" 2>&1 || code=$?
        case "$code" in
            0) ;;
            124 | 137) outcome="cut off" ;;
            *) outcome=FAILED failures=$((failures + 1)) ;;
        esac
    fi
    summary+=("$(printf '%-28s %s after %d s' "$name" "$outcome" "$((SECONDS - started))")")
    printf '%s\n' "${summary[-1]}"
}

# benchmark NAME SECONDS ARGUMENTS...: writes gpu-NAME.json
benchmark() {
    part "benchmark $1" "$2" log.txt "$python" -m posenc_experiments benchmark "${@:3}" --device "$device" \
        --json "$out/gpu-$1.json"
}

part machine 60 log.txt "$python" scripts/describe_machine.py "$out/machine.json"
test_seconds=100 select=()
[[ "$device" == cuda ]] || test_seconds=400 select=(-k "shaw or losses or checkpoint or targets")
part tests "$test_seconds" tests.txt "$python" -m pytest -q -m gpu -p no:cacheprovider -W ignore \
    tests/gpu tests/experiments/analysis/test_device.py "${select[@]}"
if [[ "$device" == cpu ]]; then
    benchmark length-32 60 time shaw --size tiny --rounds 1 --tokens 64 --lengths 32
    benchmark generation 60 generation shaw --size tiny --rounds 1 --sentences 2
    tiny=(--gpus 0 --experiments sinusoidal --set train.max-update=20
        --set 'corpus.generator-options=--seed 1 --train 500 --valid 20 --test 20')
else
    some=(diet_rel shaw rotary alibi)
    base=(--precision bf16 --tokens 4096 --rounds 7)
    benchmark length-32 110 time "${base[@]}" --lengths 32
    benchmark long 60 time,memory,kernels "${some[@]}" "${base[@]}" --lengths 32,512,2048
    benchmark generation 40 generation "${some[@]}" --precision bf16 --rounds 3
    benchmark memory 30 memory,kernels "${base[@]}" --lengths 32
    tiny=()
fi
part quickstart 600 quickstart.txt "$python" -m posenc_experiments run quickstart --jobs 0 \
    --data-dir "$work/data" --output-dir "$work/output" "${tiny[@]}"

printf '\n'
printf '%s\n' "${summary[@]}" | tee -a "$out/log.txt"
((failures == 0))
