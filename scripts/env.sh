#!/usr/bin/env bash
# Sets up all that this project needs, once, with uv, and names the Python to use.
#   source scripts/env.sh     sets and exports PYTHON (scripts/test.sh and every recipe's run.sh do this)
#   bash scripts/env.sh       the same, and prints that Python's path
# Needed: Linux, git, a C compiler, and uv, or a Python with pip and venv, which then install it into <repository>/.uv.
# Installed: this package (editable) and all that it, its recipes and its tests need, as pinned in constraints.txt, in
#   PYTHON=/path/python   that Python's virtual environment; if it is in none: <repository>/.venv, made with this Python
#   VIRTUAL_ENV           (an activated environment, PYTHON unset) that environment
#   neither               <repository>/.venv, made with a Python 3.11 or 3.12 that uv finds, or else downloads
# A .venv that this script made is made again after a set-up that was cut short, or when the repository or its Python
# moved. Other environments are installed into, never emptied. `rm -rf .venv .uv` starts over.
#
# pip's settings (PIP_INDEX_URL, PIP_FIND_LINKS, ..., pip.conf) hold for uv, where uv's own (UV_...) are not set.
# PyTorch is what the index offers: on Linux usually the CUDA build (several GB). Without a GPU, have another index asked:
#   TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu source scripts/env.sh

# The work is done in a child process, so that its shell options, its lock and its failures stay out of the caller.
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

# read_python PROGRAM: asks a Python about itself. Fails if it does not run, as a pyenv shim may, or does not fit.
read_python() {
    local ask='import sys; print("%d.%d.%d" % sys.version_info[:3], sys.base_prefix, sys.prefix, sys.executable, sep="\n")'
    VERSION="" BASE=""
    { read -r VERSION && read -r BASE && read -r PREFIX && read -r EXECUTABLE; } < <("$1" -I -c "$ask" 2>/dev/null) &&
        [[ "$VERSION" =~ ^3\.1[12]\. && "$VERSION $BASE" == "${MAKE_WITH_BASE:-$VERSION $BASE}" ]]
}

# choose: sets ENV, the environment's directory, and, if the user named a Python to make .venv with, MAKE_WITH.
choose() {
    local chosen="${PYTHON:-${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}}"
    local copy="${chosen%.venv/bin/*}"
    ENV="$OWN_VENV" MAKE_WITH="" MAKE_WITH_BASE=""
    if [[ "$copy" != "$chosen" && -d "${copy}fairseq_posenc" ]]; then
        # A shell that has sourced this script in another copy still exports that copy's PYTHON.
        [[ "${copy:-.}" -ef "$ROOT" ]] || say "$chosen belongs to another copy of this repository: using $OWN_VENV"
    elif [[ -n "$chosen" ]]; then
        read_python "$chosen" ||
            die "$chosen ${VERSION:+is Python }${VERSION:-does not run}, but $WANTED is needed: change or unset PYTHON or VIRTUAL_ENV."
        if [[ "$PREFIX" != "$BASE" ]]; then ENV="$PREFIX"; else MAKE_WITH="$EXECUTABLE" MAKE_WITH_BASE="$VERSION $BASE"; fi
    fi
    STAMP="$ENV/$STAMP_NAME"
}

# stamp: the place of the environment that was read (first line) and what is installed in it (second line).
stamp() { printf '%s\n' "$VERSION $BASE $ROOT" "$(cat constraints.txt setup.py pyproject.toml | sha256sum)"; }

# is_set_up LINES: do the first lines of the environment's stamp hold?
is_set_up() {
    [[ -f "$STAMP" ]] && read_python "$ENV/bin/python" && [[ "$(head -n "$1" "$STAMP")" == "$(stamp | head -n "$1")" ]]
}

# find_uv: sets UV to a uv that knows the options below: the one on PATH, or one that pip installs.
find_uv() {
    for UV in uv "$OWN_UV/bin/uv"; do
        [[ "$("$UV" pip install --help 2>/dev/null)" != *--default-index* ]] || return 0
    done
    say "installing uv into $OWN_UV"
    { "${MAKE_WITH:-python3}" -I -m venv --clear "$OWN_UV" && "$OWN_UV/bin/pip" install -qq -c constraints.txt uv; } >&2 ||
        die "Cannot install uv: do what is said above (Debian, Ubuntu: apt install python3-venv), or put uv on PATH."
}

# hand_on_pip_settings: makes pip's settings uv's; sets OPTIONS to those that are no variables.
hand_on_pip_settings() {
    local files pair to from value words no_index
    files="$("${MAKE_WITH:-python3}" -m pip config list 2>/dev/null)" || files=""
    for pair in UV_DEFAULT_INDEX=INDEX_URL UV_INDEX=EXTRA_INDEX_URL UV_FIND_LINKS=FIND_LINKS no_index=NO_INDEX \
        UV_INSECURE_HOST=TRUSTED_HOST SSL_CERT_FILE=CERT ALL_PROXY=PROXY; do
        to="${pair%=*}" from="${pair#*=}" value="PIP_$from" from="${from,,}"
        # a variable's value, or else the last one in pip's files
        value="${!value:-$(sed -nE "s/\\\\n/ /g; s/^(install|global)\.${from//_/-}=.(.*).$/\2/p" <<<"$files" | tail -n 1)}"
        read -rd '' -a words <<<"$value" || true
        export "$to=${!to:-${words[*]}}"
    done
    UV_FIND_LINKS="${UV_FIND_LINKS// /,}" UV_INDEX="${TORCH_INDEX_URL:-} $UV_INDEX" OPTIONS=()
    export UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}" # as pip does: the best that any index offers
    [[ "$no_index" =~ ^(0|[nN]|[oO][fF]|[fF]|$) ]] || OPTIONS+=(--no-index)
}

# set_up: makes .venv unless it is there for this place and Python; installs all packages; looks whether they work.
set_up() {
    find_uv
    hand_on_pip_settings
    if [[ "$ENV" == "$OWN_VENV" && (-e "$STAMP" || -z "$(ls -A "$ENV" 2>/dev/null)") ]] && ! is_set_up 1; then
        # The stamp comes first and stays, so that what is cut short at any time is known as made here.
        mkdir -p "$ENV" && echo unfinished >"$STAMP"
        find "$ENV/" -mindepth 1 ! -name "$STAMP_NAME" -delete
        "$UV" venv --allow-existing --python "${MAKE_WITH:->=3.11,<3.13}" "$ENV" >&2 ||
            die "Cannot make $ENV, for the reason above: name a $WANTED with PYTHON=/path/python, or connect to the internet, so that uv can download one."
    fi
    read_python "$ENV/bin/python" ||
        die "$ENV is in the way: it has no $WANTED that runs, or another than PYTHON names; move it, then run this again."
    # What the last set-up was replacing when it was cut short may be half there.
    [[ "$ENV" == "$OWN_VENV" ]] || ! grep -qsx unfinished "$STAMP" || OPTIONS+=(--reinstall)
    echo unfinished >"$STAMP"
    "$UV" pip install --python "$ENV/bin/python" "${OPTIONS[@]}" -c constraints.txt -b constraints.txt pip setuptools \
        -e '.[recipes,export,dev]' >&2 ||
        die "Cannot install the packages into $ENV, for the reason above: check the network, the disk and the settings of pip and uv."
    # With -I they are compiled even under PYTHONDONTWRITEBYTECODE, with which every training would compile them.
    "$ENV/bin/python" -I -W ignore -c 'import fairseq, torch._dynamo' >&2 ||
        die "Cannot import torch and fairseq from $ENV, for the reason above; the next run installs every package again."
    stamp >"$STAMP"
}

choose
cd "$ROOT" # so that uv and pip find nothing in the caller's directory
if ! is_set_up 2; then
    exec 9>>.venv.lock # uv keeps it open, too: it holds until a uv whose parent was killed has ended
    flock --nonblock 9 || { say "another run is setting up: waiting for it" && flock 9; }
    is_set_up 2 || set_up # the other run may have finished
fi
printf '%s\n' "$ENV/bin/python"
