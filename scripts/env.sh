#!/usr/bin/env bash
# Sets up the Python environment of this project with uv, unless that is done.
#   source scripts/env.sh     exports PYTHON, the path of its Python (scripts/test.sh and every recipe's run.sh do this)
#   bash scripts/env.sh       prints that path
# It needs Linux, git, a C compiler, and uv, or a Python with pip and venv that installs uv into <repository>/.uv.
# It installs this package (editable) and all dependencies, with the versions of constraints.txt and only files whose
# hashes are in hashes.txt (of PyTorch, which has builds for CPUs and for CUDA, any file of the version), into:
#   PYTHON=/path/python   that Python's virtual environment; if it is in none: <repository>/.venv, made with this Python
#   VIRTUAL_ENV           (an activated environment, if PYTHON is unset) that environment
#   neither               <repository>/.venv, made with a Python 3.11 or 3.12 that uv finds or downloads
# A .venv that this script made is recreated after an interrupted set-up, or when the repository or its Python moved.
# Other environments are never emptied. `rm -rf .venv .uv` starts over.
#
# uv also uses pip's settings (PIP_INDEX_URL, PIP_FIND_LINKS, ..., pip.conf), unless its own (UV_...) are set.
# The index usually has the CUDA build of PyTorch for Linux (several GB). Without a GPU, name another index for it:
#   TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu source scripts/env.sh

# A child process does the work, so that its shell options, lock and failures do not affect the caller.
if [[ "${BASH_SOURCE[0]}" != "$0" ]]; then
    _fairseq_posenc_python="$(bash "${BASH_SOURCE[0]}")" || return 1
    export PYTHON="$_fairseq_posenc_python" && return
fi

set -euo pipefail
unset CDPATH PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly ROOT OWN_VENV="$ROOT/.venv" OWN_UV="$ROOT/.uv" STAMP_NAME=.fairseq_posenc-stamp WANTED="Python 3.11 or 3.12"

say() { printf 'env: %s\n' "$*" >&2; }
die() { say "$*" && exit 1; }

# read_python PROGRAM: sets VERSION, BASE, PREFIX and EXECUTABLE of a Python. Fails if it does not run (such as a pyenv
# shim), has another version than needed, or is not the one that MAKE_WITH_BASE describes.
read_python() {
    local ask='import sys; print("%d.%d.%d" % sys.version_info[:3], sys.base_prefix, sys.prefix, sys.executable, sep="\n")'
    VERSION="" BASE=""
    { read -r VERSION && read -r BASE && read -r PREFIX && read -r EXECUTABLE; } < <("$1" -I -c "$ask" 2>/dev/null) &&
        [[ "$VERSION" =~ ^3\.1[12]\. && "$VERSION $BASE" == "${MAKE_WITH_BASE:-$VERSION $BASE}" ]]
}

# choose: sets ENV, the directory of the environment, and MAKE_WITH, if the user named a Python to make .venv with.
choose() {
    local chosen="${PYTHON:-${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}}"
    local copy="${chosen%.venv/bin/*}"
    ENV="$OWN_VENV" MAKE_WITH="" MAKE_WITH_BASE=""
    if [[ "$copy" != "$chosen" && -d "${copy}fairseq_posenc" ]]; then
        # The shell has sourced this script in another copy of the repository, and still exports that copy's PYTHON.
        [[ "${copy:-.}" -ef "$ROOT" ]] || say "$chosen belongs to another copy of this repository: using $OWN_VENV"
    elif [[ -n "$chosen" ]]; then
        read_python "$chosen" ||
            die "$chosen ${VERSION:+is Python }${VERSION:-does not run}, but $WANTED is needed: change or unset PYTHON or VIRTUAL_ENV."
        if [[ "$PREFIX" != "$BASE" ]]; then ENV="$PREFIX"; else MAKE_WITH="$EXECUTABLE" MAKE_WITH_BASE="$VERSION $BASE"; fi
    fi
    STAMP="$ENV/$STAMP_NAME"
}

# stamp: prints the Python and repository of the environment (first line), and a hash of its packages (second line).
stamp() { printf '%s\n' "$VERSION $BASE $ROOT" "$(cat constraints.txt hashes.txt setup.py pyproject.toml | sha256sum)"; }

# is_set_up LINES: succeeds if the first LINES lines of the environment's stamp are current.
is_set_up() {
    [[ -f "$STAMP" ]] && read_python "$ENV/bin/python" && [[ "$(head -n "$1" "$STAMP")" == "$(stamp | head -n "$1")" ]]
}

# find_uv: sets UV to a uv that has the option --default-index: the one on PATH, or one that pip installs.
find_uv() {
    for UV in uv "$OWN_UV/bin/uv"; do
        [[ "$("$UV" pip install --help 2>/dev/null)" != *--default-index* ]] || return 0
    done
    say "installing uv into $OWN_UV"
    { "${MAKE_WITH:-python3}" -I -m venv --clear "$OWN_UV" && "$OWN_UV/bin/pip" install -qq --require-hashes \
        -r <(sed -n '/^uv==/,/[^\\]$/p' hashes.txt); } >&2 ||
        die "Cannot install uv, for the reason above: fix it (Debian, Ubuntu: apt install python3-venv), or put uv on PATH."
}

# hand_on_pip_settings: exports pip's settings as uv's; sets OPTIONS to the one that uv takes as an option only.
hand_on_pip_settings() {
    local files pair to from value words no_index
    files="$("${MAKE_WITH:-python3}" -m pip config list 2>/dev/null)" || files=""
    for pair in UV_DEFAULT_INDEX=INDEX_URL UV_INDEX=EXTRA_INDEX_URL UV_FIND_LINKS=FIND_LINKS no_index=NO_INDEX \
        UV_INSECURE_HOST=TRUSTED_HOST SSL_CERT_FILE=CERT ALL_PROXY=PROXY; do
        to="${pair%=*}" from="${pair#*=}" value="PIP_$from" from="${from,,}"
        # the value of pip's variable, or else the last one in pip's files
        value="${!value:-$(sed -nE "s/\\\\n/ /g; s/^(install|global)\.${from//_/-}=.(.*).$/\2/p" <<<"$files" | tail -n 1)}"
        read -rd '' -a words <<<"$value" || true
        export "$to=${!to:-${words[*]}}"
    done
    UV_FIND_LINKS="${UV_FIND_LINKS// /,}" UV_INDEX="${TORCH_INDEX_URL:-} $UV_INDEX" OPTIONS=()
    export UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}" # as pip: the best version of all indexes
    [[ "$no_index" =~ ^(0|[nN]|[oO][fF]|[fF]|$) ]] || OPTIONS+=(--no-index)
}

# set_up: makes .venv, unless it exists for this repository and Python; installs all packages; checks that they import.
set_up() {
    find_uv
    hand_on_pip_settings
    if [[ "$ENV" == "$OWN_VENV" && (-e "$STAMP" || -z "$(ls -A "$ENV" 2>/dev/null)") ]] && ! is_set_up 1; then
        # The stamp is written first, so that after an interruption the script knows this .venv as its own.
        mkdir -p "$ENV" && echo unfinished >"$STAMP"
        find "$ENV/" -mindepth 1 ! -name "$STAMP_NAME" -delete
        "$UV" venv --allow-existing --python "${MAKE_WITH:->=3.11,<3.13}" "$ENV" >&2 ||
            die "Cannot make $ENV, for the reason above: name a $WANTED with PYTHON=/path/python, or connect to the internet, so that uv can download one."
    fi
    read_python "$ENV/bin/python" ||
        die "$ENV is in the way: it has no $WANTED that runs, or another than PYTHON names; move it, then run this again."
    # In other environments, an interrupted set-up may have left incomplete packages.
    [[ "$ENV" == "$OWN_VENV" ]] || ! grep -qsx unfinished "$STAMP" || OPTIONS+=(--reinstall)
    echo unfinished >"$STAMP"
    "$UV" pip install --python "$ENV/bin/python" "${OPTIONS[@]}" -c constraints.txt -c hashes.txt -b hashes.txt \
        pip setuptools -e '.[recipes,export,dev]' >&2 ||
        die "Cannot install the packages into $ENV, for the reason above: check the network, the disk and the settings of pip and uv."
    # -I ignores PYTHONDONTWRITEBYTECODE, so that bytecode is written once and not compiled by every training.
    "$ENV/bin/python" -I -W ignore -c 'import fairseq, torch._dynamo' >&2 ||
        die "Cannot import torch and fairseq from $ENV, for the reason above; the next run installs every package again."
    stamp >"$STAMP"
}

choose
cd "$ROOT" # so that uv and pip read no files of the caller's directory
if ! is_set_up 2; then
    exec 9>>.venv.lock # uv inherits it, so that a uv whose parent was killed still holds the lock
    flock --nonblock 9 || { say "another run is setting up: waiting for it" && flock 9; }
    is_set_up 2 || set_up # the other run may have finished
fi
printf '%s\n' "$ENV/bin/python"
