"""Selects the last checkpoints of a training for averaging, by epoch or by update."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import CheckpointError, few
from .loading import StrPath


def last_epoch_checkpoints(directory: StrPath, n: int, *, up_to: int | None = None) -> list[Path]:
    """The last `n` checkpoints written at the end of an epoch (`checkpoint<epoch>.pt`), oldest first.

    Args:
        up_to: ignore checkpoints of later epochs.

    Raises:
        CheckpointError: there are fewer than `n`.
    """
    return _last(directory, n, up_to, r"checkpoint(\d+)\.pt", "epoch", "keep more with --keep-last-epochs")


def last_update_checkpoints(directory: StrPath, n: int, *, up_to: int | None = None) -> list[Path]:
    """The last `n` checkpoints written between epochs (`checkpoint_<epoch>_<updates>.pt`), oldest first.

    fairseq writes them with `--save-interval-updates`.

    Args:
        up_to: ignore checkpoints of later updates.

    Raises:
        CheckpointError: there are fewer than `n`.
    """
    fix = "save more with --save-interval-updates, keep more with --keep-interval-updates"
    return _last(directory, n, up_to, r"checkpoint_\d+_(\d+)\.pt", "update", fix)


def _last(directory: StrPath, n: int, up_to: int | None, pattern: str, unit: str, fix: str) -> list[Path]:
    directory = Path(directory)
    if n < 1:
        raise CheckpointError(f"The number of checkpoints to average is {n}; it must be at least 1.")
    if not directory.is_dir():
        raise CheckpointError(f"{directory} is not a directory; name the --save-dir of fairseq-train.")
    found: list[tuple[int, Path]] = []
    for path in directory.iterdir():
        match = re.fullmatch(pattern, path.name)
        # Other files are copies (checkpoint_best.pt, checkpoint_last.pt) or checkpoints of the other kind.
        if match and path.is_file():
            found.append((int(match[1]), path))
    chosen = sorted((number, path) for number, path in found if up_to is None or number <= up_to)
    if len(chosen) < n:
        bound = "" if up_to is None else f" up to {unit} {up_to}"
        raise CheckpointError(
            f"{directory} holds {len(chosen)} {unit} checkpoints{bound} "
            f"({few(path.name for _, path in chosen)}), {n} were asked for; "
            f"ask for fewer, or train again and {fix}."
        )
    return [path for _, path in chosen[-n:]]
