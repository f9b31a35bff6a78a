"""Loading a checkpoint without running code that it may carry, and saying in one sentence why one cannot be
used."""

from __future__ import annotations

import os
import pickletools
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from .allowed import allow_file_types

StrPath = str | os.PathLike[str]


class CheckpointError(RuntimeError):
    """A checkpoint cannot be used; the message is one sentence that says which, why, and what to do."""


def load_checkpoint(path: StrPath) -> dict[str, Any]:
    """Read a checkpoint of fairseq onto the CPU, without running any code that it may carry.

    The tensors are mapped from the file where its format allows (every file since torch 1.6), so that only
    what is used gets into memory; the file must therefore stay as it is while they are in use.

    Raises CheckpointError if the file is missing, empty, damaged, unsafe, or no checkpoint of fairseq.
    """
    path = Path(path)
    start = _first_bytes(path)
    if start.startswith(_ZIP_START) and not zipfile.is_zipfile(path):
        raise _truncated(path)
    allow_file_types()
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=start.startswith(_ZIP_START))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror or error}); check the disk.") from None
    except Exception as error:  # a damaged pickle can raise anything
        # "from None": torch's own message advises to switch the safety off.
        raise CheckpointError(_what_is_wrong(path, start, error)) from None
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        holds = f"keys {few(state)}" if isinstance(state, dict) else f"a {type(state).__name__}"
        raise CheckpointError(
            f"{path} is no checkpoint of fairseq: it has no 'model' with a model's tensors "
            f"(it holds {holds}); name a file that fairseq-train wrote, such as checkpoint_best.pt."
        )
    return state


_ZIP_START = b"PK\x03\x04"
_OLD_TORCH_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # torch before 1.6: a pickled magic number


def _first_bytes(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            start = file.read(len(_OLD_TORCH_START))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist; check the checkpoint's path.") from None
    except IsADirectoryError:
        raise CheckpointError(f"{path} is a directory; name one checkpoint file in it.") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); check its permissions.") from None
    if not start:
        raise CheckpointError(
            f"{path} is empty: writing or copying it was cut off; copy it again or use another checkpoint."
        )
    return start


def _truncated(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged or cut short ({path.stat().st_size:,} bytes are there); "
        "copy it again or use another checkpoint."
    )


def _what_is_wrong(path: Path, start: bytes, error: Exception) -> str:
    """One sentence on why torch could not read `path`, which starts with `start`."""
    forbidden = re.search(r"(?:Unsupported global: GLOBAL|unsupported GLOBAL) (\S+)", str(error))
    # Pickles of a newer protocol stop the safe reader before it comes to the names.
    names = [forbidden[1]] if forbidden else _globals_in(path) if "Unsupported operand" in str(error) else []
    if names:
        return (
            f"{path} is refused: loading it would call {few(names)}, which no checkpoint of fairseq needs "
            "and which may be an attack; use a file that fairseq-train wrote."
        )
    if "Unsupported NumPy" in str(error):
        return f"{path} is refused: {str(error).splitlines()[-1]}; use a checkpoint that fairseq-train wrote."
    if start.startswith((_ZIP_START, _OLD_TORCH_START)):
        if start.startswith(_ZIP_START) and not _records(path, "data.pkl"):
            return f"{path} is a zip file but no checkpoint; name a file that fairseq-train wrote."
        return str(_truncated(path))
    return (
        f"{path} is no checkpoint: torch cannot read it as one; name a file that fairseq-train wrote, "
        "such as checkpoint_best.pt."
    )


def _records(path: Path, name: str) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return [record for record in archive.namelist() if record.split("/", 1)[-1] == name]


def _globals_in(path: Path) -> list[str]:
    """The names of functions and classes in the file's pickle, found without loading it, in their order."""
    try:
        with zipfile.ZipFile(path) as archive:
            pickled = b"".join(archive.read(record) for record in _records(path, "data.pkl"))
    except zipfile.BadZipFile:  # no zip file: torch before 1.6; or a pickle that does not fit its checksum
        with open(path, "rb") as file:
            pickled = b"" if zipfile.is_zipfile(path) else file.read(1 << 20)
    names: list[str] = []
    strings: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name in ("GLOBAL", "INST"):
                names.append(str(argument).replace(" ", "."))
            elif opcode.name == "STACK_GLOBAL":
                names.append(".".join(strings[-2:]))
            elif isinstance(argument, str):
                strings.append(argument)
    except Exception:  # a damaged pickle: what was found so far will do
        pass
    harmless = ("torch.", "collections.OrderedDict", "argparse.Namespace", "numpy.", "_codecs.encode")
    return [name for name in dict.fromkeys(names) if not name.startswith(harmless)]


def few(names: Iterable[object], most: int = 5) -> str:
    """The first `most` names, and how many more there are."""
    listed = [str(name) for name in names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more or "none"
