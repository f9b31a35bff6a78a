"""Records of finished steps, and locks: with atomic writes they make steps resumable.

A step writes to temporary names, renames them, and only then writes its record into `done.json`. So a record guarantees
complete outputs, and a run that was killed at any time can be started again.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import read_json, write_json

DONE = "done.json"  # in a directory: the inputs and outputs of the steps that finished there


def is_done(directory: Path, step: str, inputs: str = "") -> bool:
    """Whether `step` finished in `directory` with these inputs (a fingerprint), and its outputs exist in full size."""
    try:
        record = json.loads((directory / DONE).read_text(encoding="utf-8"))[step]
        return record["inputs"] == inputs and all(
            (directory / name).stat().st_size == size for name, size in record["outputs"].items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def set_done(directory: Path, step: str, inputs: str = "", outputs: Iterable[Path] | None = None) -> None:
    """Records that `step` is done; call it last. Its outputs are all files of the directory, unless they are named."""
    every = (path for path in directory.rglob("*") if path.is_file() and path.name not in (DONE, ".lock"))
    files = every if outputs is None else outputs
    sizes = {str(path.relative_to(directory)): path.stat().st_size for path in files}
    write_json(directory / DONE, {**_records(directory), step: {"inputs": inputs, "outputs": sizes}})


def forget(directory: Path, step: str) -> None:
    """Records that a step is not done; call it before changing its outputs."""
    records = _records(directory)
    if records.pop(step, None) is not None:
        write_json(directory / DONE, records)


def _records(directory: Path) -> dict[str, Any]:
    path = directory / DONE
    return dict(read_json(path)) if path.is_file() else {}


@contextmanager
def locked(directory: Path) -> Iterator[int]:
    """Locks `directory` for writing, so that two runs never write the same files; yields the lock's file descriptor.

    A child process that inherits the descriptor holds the lock too: a training that outlives a killed pipeline
    still keeps other runs out.
    """
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RecipeError(
                f"{directory} is in use by another run: wait for it to end, stop it, or give another "
                f"--output-dir or --data-dir."
            ) from None
        yield descriptor
    finally:
        os.close(descriptor)
