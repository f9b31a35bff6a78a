#!/usr/bin/env bash
# Tries the plugin with another Python and fairseq, and prints a row of the table in docs/fairseq.md.
#   bash scripts/try_fairseq.sh PYTHON FAIRSEQ [PACKAGE...]
#   bash scripts/try_fairseq.sh python3.10 fairseq==0.12.2 torch==2.14.1 torchaudio==2.11.1 'numpy<1.24'
#   bash scripts/try_fairseq.sh python3.10 ~/fairseq torch==2.14.1 torchaudio==2.11.1 numpy==2.2.6    # a checkout
# PACKAGE names the versions that go with it. The environment is temporary, unless ENVIRONMENT=DIR names one to keep: it
# is made if it does not exist. TESTS="..." are other arguments for pytest than the tests of the core.
set -euo pipefail

unset CDPATH PYTHONPATH
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
(($# >= 2)) || { sed -n '2,/^set/{/^#/p}' "${BASH_SOURCE[0]}" >&2 && exit 2; }
base="$1" fairseq="$2"
shift 2
PATH="$PATH:$root/.uv/bin"
export UV_INDEX="${TORCH_INDEX_URL:-} ${UV_INDEX:-}" UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}" # as env.sh
[[ ! -d "$fairseq" ]] || fairseq="$(cd "$fairseq" && pwd -P)"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
environment="${ENVIRONMENT:-$work/environment}"
python="$environment/bin/python"
if [[ ! -x "$python" ]]; then
    uv venv --quiet --python "$base" "$environment"
    # A checkout is built in the environment itself: a build environment would have another torch. The archive of a
    # release is built in one without torch, because it lacks the sources of the extensions that need torch.
    isolation=()
    [[ ! -d "$fairseq" ]] || isolation=(--no-build-isolation)
    uv pip install --quiet --python "$python" "$@" setuptools wheel cython click pytest pytest-xdist
    uv pip install --quiet --python "$python" "${isolation[@]}" "$@" "$fairseq"
fi
before="$(uv pip freeze --python "$python" | grep -iv posenc)"
uv pip install --quiet --python "$python" "$root"
[[ "$before" == "$(uv pip freeze --python "$python" | grep -iv posenc)" ]] || { echo "pip changed packages" >&2 && exit 1; }

cd "$root"
read -ra tests <<<"${TESTS:-tests/encodings tests/attention tests/test_model.py}"
# outcome ARGUMENTS...: pytest's last line
outcome() {
    OMP_NUM_THREADS=1 "$python" -m pytest -q -n "${WORKERS:-2}" --dist loadfile -p no:cacheprovider "$@" \
        >"$work/log" 2>&1 || { failed=1 && cat "$work/log" >&2; }
    grep -E '^[0-9]+ (passed|failed).* in ' "$work/log" | tail -n 1 | sed -E 's/ in .*//; s/, [0-9]+ (warnings?|deselected)//g'
}
failed=0
core="$(outcome "${tests[@]}")"
use="$(outcome --dist load -m slow tests/test_this_fairseq.py)"
old="$(outcome tests/checkpoints/test_other_fairseqs.py tests/checkpoints/test_at_2a633bd.py)"
"$python" - "$core" "$use" "$old" <<'END'
import importlib.metadata as metadata, platform, sys
import numpy, torch
owner = next(name for name in ("ve-fairseq", "fairseq-fixed", "fairseq") if any(
    d.metadata["Name"] == name for d in metadata.distributions()))
words = [platform.python_version(), f"{owner} {metadata.version(owner)}", torch.__version__, numpy.__version__, *sys.argv[1:]]
print("|", " | ".join(words), "|")
END
exit "$failed"
