#!/usr/bin/env bash
# Sets up everything that this project needs, once, and names the Python to use.
#
#   source scripts/env.sh     sets and exports PYTHON (scripts/test.sh and every recipe's run.sh do this)
#   bash scripts/env.sh       the same, and prints that Python's path
#
# Needed beforehand: Linux, Python 3.11 or 3.12 with its venv module, git, a C compiler. Installed: this package
# (editable) and all that it, its recipes and its tests need, each at the version in constraints.txt.
#
# Where to:
#   PYTHON=/path/python   if it is a virtual environment's Python: into that environment (but never into the .venv of
#                         another copy of this repository, whose PYTHON the shell may still export);
#                         if not: into <repository>/.venv, made with this Python
#   VIRTUAL_ENV           (an activated environment, PYTHON unset): into that environment
#   neither               into <repository>/.venv, made with the first of python3, python3.12, python3.11 and python
#                         on PATH that runs and is Python 3.11 or 3.12
# Only a .venv that this script made is ever made anew (after a set-up that was cut short, or when the repository or
# its Python moved). An environment that you made is installed into, never removed. `rm -rf .venv` starts over.
#
# PyTorch is what pip finds: on Linux usually the CUDA build (several GB). Where that is unwanted, name PyTorch's
# index of CPU builds, which pip then asks as well:
#   TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu source scripts/env.sh
# Other settings of pip (PIP_INDEX_URL, PIP_FIND_LINKS, ..., pip.conf) hold as always.
#
# When all is set up, it only compares a stamp in the environment with constraints.txt, setup.py, pyproject.toml and
# the Python's version, and calls no pip. Two runs at once wait for each other.

# The work is done in a child process, so that its shell options, its lock and its failures stay out of the caller.
if [[ "${BASH_SOURCE[0]}" != "$0" ]]; then
    _fairseq_posenc_python="$(bash "${BASH_SOURCE[0]}")" || return 1
    export PYTHON="$_fairseq_posenc_python"
    unset _fairseq_posenc_python
    return 0
fi

set -euo pipefail
# Nothing in the current directory is run or imported, and pip counts no package that only this shell's path holds.
unset CDPATH PYTHONPATH
export PYTHONSAFEPATH=1

readonly WANTED="Python 3.11 or 3.12"
readonly NEEDED_MB=3000 NEEDED_CUDA_MB=10000
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly ROOT OWN_VENV="$ROOT/.venv"
readonly STAMP_NAME=.fairseq_posenc-stamp     # in an environment that is set up: what for
readonly MARKER_NAME=.fairseq_posenc-unready  # in an environment that is being set up, or whose set-up was cut short

say() { printf 'env: %s\n' "$*" >&2; }

die() {
    say "$*"
    exit 1
}

# read_python PROGRAM: asks a Python about itself and sets VERSION (3.11.7), PREFIX, BASE (prefix of the installation
# that a virtual environment stands on) and EXECUTABLE. Fails if the program does not run, as a pyenv shim may.
read_python() {
    local answer
    answer="$("$1" -I -c 'import sys; print("%d.%d.%d" % sys.version_info[:3], sys.prefix, sys.base_prefix, sys.executable, sep="\n")' 2>/dev/null)" || return 1
    { read -r VERSION && read -r PREFIX && read -r BASE && read -r EXECUTABLE; } <<<"$answer"
}

version_fits() { [[ "$VERSION" == 3.11.* || "$VERSION" == 3.12.* ]]; }

# Debian takes the venv module apart: there, ensurepip is what is missing.
can_make_venv() { "$1" -I -c 'import ensurepip, venv' 2>/dev/null; }

# choose: sets ENV (the environment's directory), and MAKE_WITH (the Python to make .venv with, empty if none was asked
# for). Says what is wrong with an environment or a Python that the user named.
choose() {
    ENV="$OWN_VENV"
    MAKE_WITH=""
    # An exported PYTHON or an activated environment may be this very .venv: then nothing was chosen by hand.
    if [[ -n "${PYTHON:-}" && "$PYTHON" != "$OWN_VENV"/bin/* ]]; then
        command -v -- "$PYTHON" >/dev/null ||
            die "PYTHON=$PYTHON is no program that can be run: name a $WANTED, or unset PYTHON."
        read_python "$PYTHON" || die "PYTHON=$PYTHON does not run: name a working $WANTED, or unset PYTHON."
        version_fits || die "PYTHON=$PYTHON is Python $VERSION, but $WANTED is needed: name one, or unset PYTHON."
        if [[ "$PREFIX" == "$BASE" ]]; then
            MAKE_WITH="$EXECUTABLE"
        elif [[ "$PREFIX" == */.venv ]] && grep -qsFx "repository ${PREFIX%/.venv}" "$PREFIX/$STAMP_NAME"; then
            say "PYTHON=$PYTHON belongs to another copy of this repository: using $OWN_VENV (activate that environment if you do want to install into it)"
        else
            ENV="$PREFIX"
        fi
    elif [[ -n "${VIRTUAL_ENV:-}" && ! "$VIRTUAL_ENV" -ef "$OWN_VENV" && "$VIRTUAL_ENV" != "$OWN_VENV" ]]; then
        ENV="$VIRTUAL_ENV"
        read_python "$ENV/bin/python" ||
            die "The active virtual environment $ENV has no Python that runs: deactivate it, or unset VIRTUAL_ENV."
        version_fits ||
            die "The active virtual environment $ENV has Python $VERSION, but $WANTED is needed: deactivate it."
    fi
}

# find_python: sets MAKE_WITH to the first Python on PATH that fits and can make virtual environments.
find_python() {
    local name seen="" without_venv=""
    for name in python3 python3.12 python3.11 python; do
        read_python "$name" || continue
        if ! version_fits; then
            [[ "$seen" == *"$VERSION"* ]] || seen+="${seen:+, }$name is $VERSION"
        elif ! can_make_venv "$EXECUTABLE"; then
            without_venv="${without_venv:-$EXECUTABLE}"
        else
            MAKE_WITH="$EXECUTABLE"
            return
        fi
    done
    [[ -z "$without_venv" ]] || die_without_venv "$without_venv"
    die "$WANTED is needed, and none is on PATH (${seen:-no Python found}): install one, or name one with PYTHON=/path/python."
}

die_without_venv() {
    read_python "$1"
    die "$1 has no venv module: install it (Debian, Ubuntu: apt install python${VERSION%.*}-venv), or name another Python with PYTHON=/path/python."
}

# stamp_text: what the environment must have been set up for; needs read_python of its Python before.
stamp_text() {
    printf 'python %s\nbase %s\nrepository %s\n' "$VERSION" "$BASE" "$ROOT"
    cat "$ROOT/constraints.txt" "$ROOT/setup.py" "$ROOT/pyproject.toml" | sha256sum
}

# is_ready: is the environment set up for this repository as it is now?
is_ready() {
    [[ -f "$ENV/$STAMP_NAME" && ! -e "$ENV/$MARKER_NAME" ]] || return 1
    read_python "$ENV/bin/python" || return 1
    # Another Python was named than the one that .venv was made with.
    [[ -z "$MAKE_WITH" ]] || is_made_with "$MAKE_WITH" || return 1
    [[ "$(<"$ENV/$STAMP_NAME")" == "$(stamp_text)" ]]
}

# is_made_with PROGRAM: does the Python that was just read stand on the same installation as PROGRAM?
is_made_with() {
    local version="$VERSION" base="$BASE" made_with=false
    read_python "$1" && [[ "$version" == "$VERSION" && "$base" == "$BASE" ]] && made_with=true
    VERSION="$version" BASE="$base"
    [[ "$made_with" == true ]]
}

# take_lock: only one run at a time sets up an environment. Children keep the lock open, so that it holds until a pip
# whose parent was killed has ended too.
take_lock() {
    local lock="$ROOT/.venv.lock"
    [[ "$ENV" == "$OWN_VENV" ]] || lock="$ENV/.fairseq_posenc-lock"
    command -v flock >/dev/null || return 0
    { true >>"$lock"; } 2>/dev/null || die "Cannot write $lock: make its directory writable (and its disk not full), then run this again."
    exec 9>>"$lock"
    if ! flock --nonblock 9; then
        say "another run is setting up $ENV: waiting for it"
        flock 9
    fi
}

# free_megabytes DIRECTORY: free space there; fails if df does not say.
free_megabytes() {
    local free
    free="$(df -Pk "$1" 2>/dev/null | { read -r _; read -r _ _ _ free _; printf '%s' "$free"; })" || return 1
    [[ "$free" =~ ^[0-9]+$ ]] || return 1
    printf '%d' "$((free / 1024))"
}

check_space() {
    local where="$ENV" free
    [[ -d "$where" ]] || where="$ROOT"
    free="$(free_megabytes "$where")" || return 0
    ((free >= NEEDED_MB)) ||
        die "Only $free MB are free on the disk of $where, and setting up takes about $NEEDED_MB MB ($NEEDED_CUDA_MB MB with PyTorch's CUDA build): free some, then run this again."
    if ((free < NEEDED_CUDA_MB)) && [[ -z "${TORCH_INDEX_URL:-}" ]]; then
        say "$free MB are free: enough for PyTorch's CPU build, not for its CUDA build (see TORCH_INDEX_URL in scripts/env.sh)"
    fi
}

# make_own_venv: brings .venv to where pip can install into it; one that this script left half-made, or made for
# another place or Python, is made anew.
make_own_venv() {
    local why=""
    if [[ -e "$ENV/$MARKER_NAME" ]]; then
        why="an earlier set-up of .venv was cut short"
    elif [[ -f "$ENV/$STAMP_NAME" ]]; then
        if ! read_python "$ENV/bin/python"; then
            why="the Python of .venv does not run any more"
        elif [[ -n "$MAKE_WITH" ]] && ! is_made_with "$MAKE_WITH"; then
            why=".venv was made with Python $VERSION of $BASE"
        elif [[ "$(head -n 3 "$ENV/$STAMP_NAME")" != "$(stamp_text | head -n 3)" ]]; then
            why=".venv was made for another place or Python"
        fi
    elif [[ -f "$ENV/pyvenv.cfg" ]]; then # made by hand
        read_python "$ENV/bin/python" || die "The Python of $ENV does not run: remove that directory, then run this again."
        version_fits || die "$ENV has Python $VERSION, but $WANTED is needed: remove that directory, then run this again."
        [[ -z "$MAKE_WITH" ]] || is_made_with "$MAKE_WITH" ||
            die "$ENV was not made with PYTHON=${PYTHON:-}: remove that directory, or unset PYTHON."
    elif [[ -n "$(ls -A "$ENV" 2>/dev/null)" ]]; then
        die "$ENV is in the way: it is no virtual environment; move it, then run this again."
    fi
    if [[ -n "$why" ]]; then
        say "$why: making it anew"
        # The marker stays until all is done: this, too, may be cut short.
        { true >"$ENV/$MARKER_NAME" && find "$ENV/" -mindepth 1 ! -name "$MARKER_NAME" -delete; } 2>/dev/null ||
            die "Cannot empty $ENV: remove that directory, then run this again."
    fi
    if [[ ! -f "$ENV/pyvenv.cfg" ]]; then
        [[ -n "$MAKE_WITH" ]] || find_python
        can_make_venv "$MAKE_WITH" || die_without_venv "$MAKE_WITH"
        read_python "$MAKE_WITH"
        say "making $ENV with Python $VERSION ($MAKE_WITH)"
        { mkdir -p "$ENV" && true >"$ENV/$MARKER_NAME"; } 2>/dev/null || die "Cannot write $ENV: make $ROOT writable, then run this again."
        "$MAKE_WITH" -m venv "$ENV" >"$ENV/setup.log" 2>&1 || explain "making $ENV" "$ENV/setup.log"
    fi
}

# explain WHAT LOG: says in one sentence why WHAT failed, shows the end of LOG, and ends the script.
explain() {
    local why
    if grep -qiE 'No space left on device|Disk quota exceeded|\[Errno (28|122)\]' "$2"; then
        why="the disk is full: free about $NEEDED_MB MB on the disk of $ENV ($NEEDED_CUDA_MB MB for PyTorch's CUDA build)"
    elif grep -qiE 'NewConnectionError|NameResolution|name resolution|Max retries exceeded|connection broken|ConnectTimeout|Read timed out|ProxyError|SSLError|Network is unreachable|Connection refused' "$2"; then
        why="pip could not reach its package index: check the network, the proxy and pip's settings"
    elif grep -qE 'No matching distribution found' "$2"; then
        why="pip's package index does not offer $(sed -n 's/.*No matching distribution found for \([^ ]*\).*/\1/p' "$2" | tail -n 1) for Python $VERSION on $(uname -sm): check the network and pip's settings (pip config list)"
    elif grep -q ResolutionImpossible "$2"; then
        why="pip's package index offers no set of packages that fits constraints.txt: check pip's settings (pip config list)"
    elif grep -qE 'Permission denied|Read-only file system' "$2"; then
        why="a directory cannot be written to: make $ENV writable"
    else
        why="mend what the log says"
    fi
    say "Failed in $1: $why; then run this again. The end of $2:"
    grep -vE '^ *$|^\[notice\]' "$2" | tail -n 5 | cut -c 1-300 | sed 's/^/env:   | /' >&2
    exit 1
}

# progress: of pip's output, says the lines that one waits for.
progress() {
    local line size hint=""
    command -v nvidia-smi >/dev/null ||
        hint="this is PyTorch's CUDA build, and no NVIDIA GPU is seen: TORCH_INDEX_URL in scripts/env.sh tells how to get the smaller CPU build"
    while IFS= read -r line; do
        if [[ -n "$hint" && "$line" == *Downloading*nvidia_* ]]; then
            say "$hint"
            hint=""
        fi
        case "$line" in
        *Downloading*" GB)") say "  ${line#"${line%%[![:space:]]*}"}" ;;
        *Downloading*" MB)")
            size="${line##*(}"
            size="${size%%[. ]*}"
            ((size < 20)) || say "  ${line#"${line%%[![:space:]]*}"}"
            ;;
        "Installing collected packages"*torch*) say "  unpacking" ;;
        esac
    done
}

# install: all packages, then a look whether they work.
install() {
    local python="$ENV/bin/python" log="$ENV/setup.log" options=(--no-input --progress-bar off)
    local started="$SECONDS"
    if [[ -e "$ENV/$MARKER_NAME" && "$ENV" != "$OWN_VENV" ]]; then
        say "an earlier set-up of $ENV was cut short: installing every package again"
        options+=(--force-reinstall)
    fi
    { rm -f "$ENV/$STAMP_NAME" && true >"$ENV/$MARKER_NAME"; } 2>/dev/null || die "Cannot write in $ENV: make it writable, then run this again."
    [[ -z "${TORCH_INDEX_URL:-}" ]] || options+=(--extra-index-url "$TORCH_INDEX_URL")
    "$python" -m pip --version >/dev/null 2>&1 || "$python" -m ensurepip >"$log" 2>&1 || explain "installing pip" "$log"

    say "installing the pinned packages into $ENV (some minutes the first time; log: $log)"
    # pip's temporary files go beside the packages: one disk to have space on, and /tmp is often small.
    rm -rf "$ENV/.tmp"
    mkdir "$ENV/.tmp"
    (
        cd "$ROOT" || exit 1
        unset PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV
        export TMPDIR="$ENV/.tmp" PIP_DISABLE_PIP_VERSION_CHECK=1
        # Packages are built with the pinned setuptools, too: pip's own building environments know no constraints.
        "$python" -m pip install "${options[@]}" "$(grep '^setuptools==' constraints.txt)" 2>&1 &&
            "$python" -m pip install "${options[@]}" --no-build-isolation \
                -c constraints.txt -e '.[recipes,export,dev]' 2>&1
    ) | tee "$log" | progress || explain "installing the packages" "$log"
    rm -rf "$ENV/.tmp"

    say "trying them"
    (cd / && "$python" -c 'import fairseq, torch') >>"$log" 2>&1 || explain "importing torch and fairseq" "$log"
    read_python "$python"
    stamp_text >"$ENV/.stamp.new"
    mv "$ENV/.stamp.new" "$ENV/$STAMP_NAME"
    rm -f "$ENV/$MARKER_NAME"
    say "ready after $((SECONDS - started)) s"
}

choose
if ! is_ready; then
    take_lock
    # Another run may have finished meanwhile.
    if ! is_ready; then
        check_space
        [[ "$ENV" != "$OWN_VENV" ]] || make_own_venv
        read_python "$ENV/bin/python"
        install
    fi
fi
printf '%s\n' "$ENV/bin/python"
