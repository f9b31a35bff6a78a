"""Loads checkpoints without running code from them, and explains in one sentence why a file cannot be loaded.

Only torch 2.10 and later keep that promise; with an older one, a warning says so.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.torch_version import TorchVersion

from ..errors import CheckpointError
from .allowed import checkpoint_types

StrPath = str | os.PathLike[str]
logger = logging.getLogger(__name__)


def load_checkpoint(path: StrPath, *, mapped: bool = True) -> dict[str, Any]:
    """Loads a checkpoint of fairseq to the CPU without running code from it, and verifies the checksums in the file.

    Args:
        path: the file.
        mapped: memory-map the tensors if the format allows it (since torch 1.6), so that only the tensors that are used
            take memory. The file must then not change while they are in use.

    Raises:
        CheckpointError: the file is missing, damaged, unsafe, or not a checkpoint of fairseq.
    """
    path = Path(path)
    _warn_of_old_torch()
    try:
        zipped = zipfile.is_zipfile(path)
        if zipped:
            with zipfile.ZipFile(path) as archive:
                # torch writes checksums, unless it is told not to, but does not verify them
                if any(record.CRC for record in archive.infolist()) and archive.testzip() is not None:
                    raise ValueError("a checksum differs")
        with checkpoint_types():
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped and zipped)
    except Exception as error:  # a damaged pickle can raise anything
        # "from None" hides torch's own message, which advises to set weights_only=False.
        raise CheckpointError(_explain(path, error)) from None
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise CheckpointError(
            f"{path} is no checkpoint of fairseq: it has no dict 'model' of parameters; name a file that fairseq-train "
            "wrote, such as checkpoint_best.pt."
        )
    return state


@functools.cache  # once per process
def _warn_of_old_torch() -> None:
    """Warns that torch's unpickler before 2.10 is no protection (CVE-2026-24747; before 2.6 also CVE-2025-32434)."""
    if TorchVersion(torch.__version__) < "2.10":
        logger.warning(
            "a crafted checkpoint can run code in torch %s, although it is loaded with weights_only: load only files "
            "that you trust, or install torch 2.10 or later",
            torch.__version__,
        )


def _explain(path: Path, error: Exception) -> str:
    """Explains in one sentence why torch could not load `path`."""
    if isinstance(error, OSError) and error.filename is not None:  # from opening it
        return f"{path} cannot be read ({error.strerror}); check its path."
    if forbidden := re.search(r"(?:Unsupported global: GLOBAL|unsupported GLOBAL) (\S+)", str(error)):
        return (
            f"{path} is refused: loading it would call {forbidden[1]}, which no checkpoint of fairseq needs "
            "and which may be an attack; use a file that fairseq-train wrote."
        )
    return (
        f"{path} is damaged or no checkpoint (it has {path.stat().st_size:,} bytes); copy it again or name a file that "
        "fairseq-train wrote, such as checkpoint_best.pt."
    )


def check_finite(path: Path, name: str, value: Tensor) -> None:
    """Refuses a parameter with NaN or infinite numbers.

    Raises:
        CheckpointError: it has such numbers.
    """
    # aminmax returns NaN if any number is NaN; torch.isfinite would allocate several tensors of the same size.
    if value.numel() and not all(math.isfinite(extreme) for extreme in torch.aminmax(value)):
        raise CheckpointError(
            f"{path} holds NaN or infinite numbers in {name}, so its training has diverged; use an earlier checkpoint."
        )
