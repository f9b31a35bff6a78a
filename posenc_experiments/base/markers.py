"""Records of finished steps, hashes of their inputs, atomic writes and locks: together they make steps resumable.

A step writes to temporary names, renames them, and only then writes its record into `done.json`. So a record guarantees
complete outputs, and a run that was killed at any time can be started again.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from posenc_experiments.base.errors import RecipeError

TEMPORARY = ".tmp"  # what the names of unfinished files and directories end with
DONE = "done.json"  # in a directory: the inputs and outputs of the steps that finished there


def fingerprint(value: Any) -> str:
    """The SHA-256 of a value that JSON can hold; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def not_default(settings: Any) -> dict[str, Any]:
    """The fields of a dataclass whose values differ from their defaults.

    Fingerprints use only these, so that adding a field with a default does not change any.
    """
    defaults = vars(type(settings)())
    return {name: value for name, value in vars(settings).items() if value != defaults[name]}


def file_hash(path: Path, method: str = "sha256") -> str:
    """The checksum of a file, read in blocks."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, method).hexdigest()


def require_output(path: Path, example: str, option: str = "--output") -> None:
    """Refuses a path of an option that is neither a file nor a new name, before the work whose result it is for.

    Args:
        example: a file name, for the message.

    Raises:
        RecipeError: it is a directory or a device, or its directory is missing or cannot be written.
    """
    # The rename would replace a device, and /dev/stdout even where it leads to a file.
    parent = path.absolute().parent
    if (os.path.lexists(path) and not path.is_file()) or parent == Path("/dev"):
        raise RecipeError(
            f"{option} {path} is a directory, a device, a pipe or a broken link: name a file, such as {example}."
        )
    if not parent.is_dir():
        raise RecipeError(f"{option} {path}: {parent} is not a directory: make it first, or name another file.")
    try:
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise RecipeError(
            f"{option} {path} cannot be written ({error.strerror}): name a file in a directory that can be."
        ) from None


def require_directory(path: Path, option: str) -> None:
    """Refuses a path of an option that is not a directory and cannot become one.

    Raises:
        RecipeError: it, or what it lies in, is a file, a device, a pipe or a broken link.
    """
    path = path.absolute()
    there = next(one for one in (path, *path.parents) if os.path.lexists(one))
    if not there.is_dir():
        raise RecipeError(f"{option} {path}: {there} is not a directory: name another path.")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yields a temporary name beside `path`; renames what is there if the block succeeds, deletes it otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # No other process uses this name, on this machine or on others with the same disk.
    temporary = path.with_name(f"{path.name}.{uuid4().hex[:8]}{TEMPORARY}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True) if temporary.is_dir() else temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            error.filename = str(path)  # a failed write names no file, and a failed copy the source
            del error.filename2
        raise


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yields an empty directory beside `path`; renames it to `path` if the block succeeds, deletes it otherwise."""
    with atomic_path(path) as temporary:
        yield empty_directory(temporary)
        shutil.rmtree(path, ignore_errors=True)  # an earlier one, whose record no longer holds


def write_text(path: Path, text: str) -> None:
    """Writes `text` as UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Reads a JSON file that a stage wrote; RecipeError if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecipeError(f"{path} is missing: run the stage that makes it (see --stages).") from None
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"{path} is not valid JSON ({error}): delete it and run its stage again.") from None


def empty_directory(path: Path) -> Path:
    """Makes `path` an empty directory: deletes what an earlier run left in it."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


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
