"""Loads checkpoints without running code from them, and explains in one sentence why a file cannot be loaded."""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path
from typing import Any

import torch

from ..errors import CheckpointError
from .allowed import safe_loading
from .checking import check_state

StrPath = str | os.PathLike[str]

_OLD_TORCH_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the pickled magic number of torch before 1.6


def load_checkpoint(path: StrPath, *, mapped: bool = True) -> dict[str, Any]:
    """Loads a checkpoint of fairseq to the CPU without running code from it, and verifies the checksums in the file.

    Args:
        path: the file.
        mapped: memory-map the tensors if the format allows it (since torch 1.6), so that only the tensors that are used
            take memory. The file must then not change while they are in use.

    Raises:
        CheckpointError: the file is missing, empty, damaged, unsafe, or not a checkpoint of fairseq.
    """
    path = Path(path)
    start = _first_bytes(path)
    zipped = start.startswith(b"PK\x03\x04")
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
    return check_state(path, state)


def _first_bytes(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            start = file.read(len(_OLD_TORCH_START))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist; check the checkpoint's path.") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); name a checkpoint file.") from None
    if not start:
        raise CheckpointError(
            f"{path} is empty: writing or copying it was interrupted; copy it again or use another checkpoint."
        )
    return start


def _check_archive(path: Path) -> None:
    """Refuses a damaged file: torch writes checksums, but does not verify them."""
    try:
        with zipfile.ZipFile(path) as archive:
            records = archive.infolist()
            # Without checksums, as torch writes it on demand, all are 0.
            damaged = archive.testzip() if any(record.CRC for record in records) else None
    except Exception:  # a damaged directory can raise anything
        raise _truncated(path) from None
    if damaged is not None:
        raise CheckpointError(
            f"{path} is damaged: {damaged} in it does not match its checksum; copy it again or use another checkpoint."
        )
    if not any(record.filename.split("/", 1)[-1] == "data.pkl" for record in records):
        raise CheckpointError(f"{path} is a zip file but not a checkpoint; name a file that fairseq-train wrote.")
    if any(record.compress_type != zipfile.ZIP_STORED for record in records):  # torch would map the bytes as they are
        raise CheckpointError(f"{path} is refused: it is compressed; use the file as fairseq-train wrote it.")


def _truncated(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged or truncated (it has {path.stat().st_size:,} bytes); copy it again or use another "
        "checkpoint."
    )


def _explain(path: Path, start: bytes, error: Exception) -> str:
    """Explains in one sentence why torch could not load `path`, a file that begins with the bytes `start`."""
    if forbidden := re.search(r"(?:Unsupported global: GLOBAL|unsupported GLOBAL) (\S+)", str(error)):
        return (
            f"{path} is refused: loading it would call {forbidden[1]}, which no checkpoint of fairseq needs "
            "and which may be an attack; use a file that fairseq-train wrote."
        )
    if start == _OLD_TORCH_START:
        return str(_truncated(path))
    if start.startswith(b"PK"):
        return f"{path} is refused: it holds more than numbers and settings; use a file that fairseq-train wrote."
    return (
        f"{path} is no checkpoint: torch cannot load it; name a file that fairseq-train wrote, such as "
        "checkpoint_best.pt."
    )
