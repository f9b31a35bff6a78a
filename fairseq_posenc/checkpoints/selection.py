"""Selects the last checkpoints of a training for averaging, by epoch or by update."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import CheckpointError, few
from .loading import StrPath

#: by unit: the names of its checkpoints
_NAMES = {"epoch": r"checkpoint(\d+)\.pt", "update": r"checkpoint_\d+_(\d+)\.pt"}


def last_checkpoints(directory: StrPath, n: int, unit: str, *, up_to: int | None = None) -> list[Path]:
    """The last `n` checkpoints of a training, oldest first.

    Args:
        unit: "epoch" for those at the end of an epoch (`checkpoint<epoch>.pt`), "update" for those between epochs
            (`checkpoint_<epoch>_<updates>.pt`), which fairseq writes with `--save-interval-updates`.
        up_to: ignore checkpoints of later epochs or updates.

    Raises:
        CheckpointError: there are fewer than `n`.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise CheckpointError(f"{directory} is not a directory; name the --save-dir of fairseq-train.")
    # Other files are copies (checkpoint_best.pt, checkpoint_last.pt) or checkpoints of the other kind.
    matches = ((re.fullmatch(_NAMES[unit], path.name), path) for path in directory.iterdir())
    numbered = sorted((int(match[1]), path) for match, path in matches if match)
    chosen = [(number, path) for number, path in numbered if up_to is None or number <= up_to]
    if len(chosen) < n:
        bound = "" if up_to is None else f" up to {unit} {up_to}"
        raise CheckpointError(
            f"{directory} holds {len(chosen)} {unit} checkpoints{bound} "
            f"({few(path.name for _, path in chosen)}), {n} were asked for; "
            "ask for fewer, or train again and keep more (--keep-last-epochs, or --save-interval-updates and "
            "--keep-interval-updates)."
        )
    return [path for _, path in chosen[len(chosen) - n :]]
