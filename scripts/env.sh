#!/usr/bin/env bash
# Sets up all that this project needs, once, with uv, and names the Python to use.
#
#   source scripts/env.sh     sets and exports PYTHON (scripts/test.sh and every recipe's run.sh do this)
#   bash scripts/env.sh       the same, and prints that Python's path
#
# Needed beforehand: Linux, git, a C compiler, and uv, or a Python with pip and venv, which then install it into
# <repository>/.uv. Installed: this package (editable) and all that it, its recipes and its tests need, each at the
# version in constraints.txt, in
#   PYTHON=/path/python   that Python's virtual environment (but never the .venv of another copy of this repository, whose
#                         PYTHON the shell may still export); if it is in none: <repository>/.venv, made with this Python
#   VIRTUAL_ENV           (an activated environment, PYTHON unset) that environment
#   neither               <repository>/.venv, made with a Python 3.11 or 3.12 that uv finds, or else downloads
# A .venv that this script made is made again after a set-up that was cut short, or when the repository or its Python
# moved. Other environments are installed into, never removed. `rm -rf .venv .uv` starts over. When all is set up, a
# stamp is compared with constraints.txt, setup.py, pyproject.toml and Python's version, and no more is done.
#
# PyTorch is what the package index offers: on Linux usually the CUDA build (several GB). Where that is unwanted, name
# PyTorch's index of CPU builds, which is then asked as well:
#   TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu source scripts/env.sh
# pip's settings (PIP_INDEX_URL, PIP_FIND_LINKS, ..., pip.conf) hold for uv, where uv's own (UV_...) are not set.

# The work is done in a child process, so that its shell options, its lock and its failures stay out of the caller.
if [[ "${BASH_SOURCE[0]}" != "$0" ]]; then
    _fairseq_posenc_python="$(bash "${BASH_SOURCE[0]}")" || return 1
    export PYTHON="$_fairseq_posenc_python"
    unset _fairseq_posenc_python
    return 0
fi

set -euo pipefail
unset CDPATH PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly ROOT OWN_VENV="$ROOT/.venv" OWN_UV="$ROOT/.uv" WANTED="Python 3.11 or 3.12"
readonly STAMP_NAME=.fairseq_posenc-stamp # in an environment: what it is set up for, or "unfinished"

say() { printf 'env: %s\n' "$*" >&2; }

die() { say "$*" && exit 1; }

# read_python PROGRAM: asks a Python about itself. Fails if the program does not run, as a pyenv shim may, or does not fit.
read_python() {
    local answer ask='import sys; print("%d.%d.%d" % sys.version_info[:3], sys.prefix, sys.base_prefix, sys.executable, sep="\n")'
    VERSION=""
    answer="$("$1" -I -c "$ask" 2>/dev/null)" || return 1
    { read -r VERSION && read -r PREFIX && read -r BASE && read -r EXECUTABLE; } <<<"$answer"
    # MAKE_WITH_BASE: what the user wants .venv to stand on, if anything in particular
    [[ "$VERSION" =~ ^3\.1[12]\. && "$VERSION $BASE" == "${MAKE_WITH_BASE:-$VERSION $BASE}" ]]
}

# choose: sets ENV, the environment's directory, and MAKE_WITH, if the user named a Python to make .venv with.
choose() {
    local by chosen
    ENV="$OWN_VENV" MAKE_WITH="" MAKE_WITH_BASE=""
    for by in PYTHON VIRTUAL_ENV; do
        chosen="${!by:-}"
        [[ "$by" == PYTHON || -z "$chosen" ]] || chosen+=/bin/python
        # An exported PYTHON or an activated environment may be this very .venv: then nothing was chosen by hand.
        [[ -n "$chosen" && "$chosen" != "$OWN_VENV"/bin/* && ! "${chosen%/bin/*}" -ef "$OWN_VENV" ]] || continue
        read_python "$chosen" ||
            die "$by=${!by} ${VERSION:+is Python }${VERSION:-does not run}, but $WANTED is needed: name another, or unset $by."
        if [[ "$PREFIX" == "$BASE" ]]; then
            MAKE_WITH="$EXECUTABLE" MAKE_WITH_BASE="$VERSION $BASE"
        elif [[ "$by" == PYTHON && "$PREFIX" != "$OWN_VENV" ]] && grep -qsFx "repository ${PREFIX%/.venv}" "$PREFIX/$STAMP_NAME"; then
            say "PYTHON=$PYTHON belongs to another copy of this repository: using $OWN_VENV (activate that environment if you do want to install into it)"
        else
            ENV="$PREFIX"
        fi
        break
    done
    readonly ENV STAMP="$ENV/$STAMP_NAME"
}

# is_set_up LINES: do the first lines of the environment's stamp hold? Three are about its place, the fourth is about
# what is installed.
is_set_up() {
    [[ -f "$STAMP" ]] && read_python "$ENV/bin/python" && [[ "$(head -n "$1" "$STAMP")" == "$(stamp | head -n "$1")" ]]
}

stamp() {
    printf 'python %s\nbase %s\nrepository %s\n' "$VERSION" "$BASE" "$ROOT"
    cat constraints.txt setup.py pyproject.toml | sha256sum
}

mark_unfinished() { echo unfinished >"$STAMP" || die "Cannot write in $ENV: make it writable, then run this again."; }

# find_uv: sets UV to a uv that knows the options below: the one on PATH, or one that pip installs.
find_uv() {
    local python
    for UV in uv "$OWN_UV/bin/uv"; do
        [[ "$("$UV" pip install --help 2>/dev/null)" != *--default-index* ]] || return 0
    done
    for python in "${MAKE_WITH:-python3}" "$ENV/bin/python" python3 python3.12 python3.11; do
        ! "$python" -I -c 'import ensurepip, venv' 2>/dev/null || break
    done
    say "installing uv into $OWN_UV"
    { "$python" -I -m venv --clear "$OWN_UV" && "$OWN_UV/bin/python" -m pip install -qq -c constraints.txt uv; } >&2 ||
        die "Cannot install uv with $python: do what is said above (Debian, Ubuntu: apt install python3-venv), or put uv on PATH, then run this again."
}

# pip_setting NAME: the words that pip's variable gives, or else its files (their settings are in PIP_FILES).
pip_setting() {
    local variable="PIP_${1^^}" words
    words="$(sed -nE "s/\\\\n/ /g; s/^(install|global)\.${1//_/-}=.(.*).$/\2/p" <<<"$PIP_FILES" | tail -n 1)"
    words="${!variable:-$words}"
    read -ra words <<<"${words//$'\n'/ }"
    printf '%s' "${words[*]}"
}

# hand_on_pip_settings: makes pip's settings uv's; sets OPTIONS to those that are no variables.
hand_on_pip_settings() {
    local python
    for python in "$ENV/bin/python" "${MAKE_WITH:-python3}" python3 "$OWN_UV/bin/python"; do
        ! PIP_FILES="$("$python" -m pip config list 2>/dev/null)" || break
    done
    : "${UV_DEFAULT_INDEX:=$(pip_setting index_url)}" "${UV_INDEX:=$(pip_setting extra_index_url)}"
    : "${UV_FIND_LINKS:=$(pip_setting find_links | tr ' ' ,)}" "${UV_INSECURE_HOST:=$(pip_setting trusted_host)}"
    : "${SSL_CERT_FILE:=$(pip_setting cert)}" "${ALL_PROXY:=$(pip_setting proxy)}"
    OPTIONS=()
    [[ "$(pip_setting no_index)" =~ ^(0|[nN]|[oO][fF]|[fF]|$) ]] || OPTIONS+=(--no-index)
    [[ -n "${TORCH_INDEX_URL:-}$UV_DEFAULT_INDEX$UV_INDEX$UV_FIND_LINKS" ]] || command -v nvidia-smi >/dev/null ||
        say "no NVIDIA GPU is seen: TORCH_INDEX_URL would spare gigabytes of CUDA (see the head of scripts/env.sh)"
    UV_INDEX="${TORCH_INDEX_URL:-} $UV_INDEX"
    : "${UV_INDEX_STRATEGY:=unsafe-best-match}" # as pip does: the best that any index offers
    export UV_DEFAULT_INDEX UV_INDEX UV_FIND_LINKS UV_INSECURE_HOST SSL_CERT_FILE ALL_PROXY UV_INDEX_STRATEGY
}

# empty_own_venv: empties .venv if it has to be made (again).
empty_own_venv() {
    if [[ -e "$STAMP" ]]; then
        ! is_set_up 3 || return 0
        say "$ENV is unfinished, or was made for another place or Python: making it again"
    elif [[ -n "$(ls -A "$ENV" 2>/dev/null)" ]]; then # not made here
        read_python "$ENV/bin/python" ||
            die "$ENV is in the way: it has no $WANTED that runs, or another than PYTHON names; move it, then run this again."
        return
    fi
    { mkdir -p "$ENV" && mark_unfinished && find "$ENV/" -mindepth 1 ! -name "$STAMP_NAME" -delete; } ||
        die "Cannot empty $ENV: remove that directory, then run this again."
}

# install: all packages, then a look whether they work.
install() {
    # A package may be half there, if the last set-up was cut short.
    [[ "$ENV" == "$OWN_VENV" ]] || ! grep -qsx unfinished "$STAMP" || OPTIONS+=(--reinstall)
    mark_unfinished
    say "installing the pinned packages into $ENV"
    "$UV" pip install --python "$ENV/bin/python" "${OPTIONS[@]}" -c constraints.txt -b constraints.txt -e '.[recipes,export,dev]' \
        pip setuptools >&2 ||
        die "Cannot install the packages into $ENV, for the reason above: check the network, the disk and the settings of pip and uv, then run this again."
    # With -I they are compiled even under PYTHONDONTWRITEBYTECODE, with which every training would compile them.
    "$ENV/bin/python" -I -W ignore -c 'import fairseq, torch._dynamo' >&2 ||
        die "Cannot import torch and fairseq from $ENV, for the reason above; the next run installs every package again."
    read_python "$ENV/bin/python"
    stamp >"$STAMP"
    say "ready after $SECONDS s"
}

choose
cd "$ROOT" # so that uv and pip find nothing in the caller's directory
if ! is_set_up 4; then
    { true >>.venv.lock; } || die "Cannot write $ROOT/.venv.lock: make its directory writable, then run this again."
    exec 9>>.venv.lock # uv keeps it open, too: it holds until a uv whose parent was killed has ended
    flock --nonblock 9 || { say "another run is setting up: waiting for it" && flock 9; }
    if ! is_set_up 4; then # another run may have finished meanwhile
        [[ "$ENV" != "$OWN_VENV" ]] || empty_own_venv
        find_uv # only now: it might have been in there
        hand_on_pip_settings
        [[ -e "$ENV/bin/python" ]] || "$UV" venv --allow-existing --python "${MAKE_WITH:->=3.11,<3.13}" "$ENV" >&2 ||
            die "Cannot make $ENV, for the reason above: name a $WANTED with PYTHON=/path/python, or connect to the internet, so that uv can download one, then run this again."
        install
    fi
fi
printf '%s\n' "$ENV/bin/python"
