"""Loads checkpoints without running code from them, and explains in one sentence why a file cannot be loaded."""

from __future__ import annotations

import os
import pickletools
import re
import stat
import zipfile
from pathlib import Path
from typing import Any

import torch

from ..errors import CheckpointError, few
from .allowed import safe_loading
from .checking import check_state
from .checksums import Checksums

StrPath = str | os.PathLike[str]


def load_checkpoint(path: StrPath, *, mapped: bool = True) -> dict[str, Any]:
    """Loads a checkpoint of fairseq to the CPU without running code from it.

    Args:
        path: the file.
        mapped: memory-map the tensors if the format allows it (since torch 1.6), so that only the tensors that are used
            take memory. The file must then not change while they are in use. Their checksums are verified only if this
            is false: all tensors would have to be read.

    Raises:
        CheckpointError: the file is missing, empty, damaged, unsafe, or not a checkpoint of fairseq.
    """
    path = Path(path)
    start = _first_bytes(path)
    zipped = start.startswith(_ZIP_START)
    if zipped:
        _check_archive(path)
    try:
        with safe_loading():
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped and zipped)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror or error}); check the disk.") from None
    except Exception as error:  # a damaged pickle can raise anything
        # "from None" hides torch's own message, which advises to set weights_only=False.
        raise CheckpointError(_explain(path, start, error)) from None
    state = check_state(path, state)
    if not mapped:
        Checksums(path).verify_all("", state)
    return state


_ZIP_START = b"PK\x03\x04"
_OLD_TORCH_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the pickled magic number of torch before 1.6


def _first_bytes(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # reading a pipe would wait for ever
            raise CheckpointError(f"{path} is a pipe or a device; name a checkpoint file.")
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
            f"{path} is empty: writing or copying it was interrupted; copy it again or use another checkpoint."
        )
    return start


def _check_archive(path: Path) -> None:
    """Refuses zip files with compressed or encrypted records: torch would memory-map these bytes as they are."""
    try:
        with zipfile.ZipFile(path) as archive:
            records = archive.infolist()
    except Exception:  # a damaged directory can raise anything
        raise _truncated(path) from None
    for record in records:
        if record.flag_bits & 1 or record.compress_type != zipfile.ZIP_STORED:
            changed = "encrypted" if record.flag_bits & 1 else "compressed"
            raise CheckpointError(
                f"{path} is refused: {record.filename} in it is {changed}, which torch never writes; use the file as "
                "fairseq-train wrote it."
            )


def _truncated(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged or truncated (it has {path.stat().st_size:,} bytes); copy it again or use another "
        "checkpoint."
    )


def _explain(path: Path, start: bytes, error: Exception) -> str:
    """Explains in one sentence why torch could not load `path`, a file that begins with the bytes `start`."""
    forbidden = re.search(r"(?:Unsupported global: GLOBAL|unsupported GLOBAL) (\S+)", str(error))
    # With newer pickle protocols torch's safe unpickler fails before it reads the names.
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
            return f"{path} is a zip file but not a checkpoint; name a file that fairseq-train wrote."
        return str(_truncated(path))
    return (
        f"{path} is no checkpoint: torch cannot load it; name a file that fairseq-train wrote, such as "
        "checkpoint_best.pt."
    )


def _records(path: Path, name: str) -> list[str]:
    """The records of a checkpoint with this name, below its top directory."""
    with zipfile.ZipFile(path) as archive:
        return [record for record in archive.namelist() if record.split("/", 1)[-1] == name]


def _globals_in(path: Path) -> list[str]:
    """The names of functions and classes in the pickle of a file, in their order, found without loading it."""
    try:
        with zipfile.ZipFile(path) as archive:
            pickled = b"".join(archive.read(record) for record in _records(path, "data.pkl"))
    except zipfile.BadZipFile:  # written by torch before 1.6, or the pickle does not match its checksum
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
    except Exception:  # a damaged pickle: return the names before the damage
        pass
    harmless = ("torch.", "collections.OrderedDict", "argparse.Namespace", "numpy.", "_codecs.encode")
    return [name for name in dict.fromkeys(names) if not name.startswith(harmless)]
