#!/usr/bin/env bash
# Writes hashes.txt, the hashes of all packages of constraints.txt, from the package index. Give it after every change of
# constraints.txt. PyTorch is left out: which of its builds is installed depends on the machine.
set -euo pipefail

unset CDPATH
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/env.sh >/dev/null
PATH="$PWD/.uv/bin:$PATH"
export UV_CUSTOM_COMPILE_COMMAND="bash scripts/lock.sh"
uv pip compile --quiet --universal --no-deps --generate-hashes --no-annotate --no-emit-package torch \
    --no-emit-package torchaudio --python-version 3.11.5 --output-file hashes.txt constraints.txt
