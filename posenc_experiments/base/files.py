"""Files: hashes of what they hold, JSON, and writes that a kill leaves whole or not made."""

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from posenc_experiments.base.errors import RecipeError

TEMPORARY = ".tmp"  # what the names of unfinished files and directories end with


def fingerprint(value: object) -> str:
    """The SHA-256 of a value that JSON can hold; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def not_default(settings: object) -> dict[str, Any]:
    """The fields of a dataclass whose values differ from their defaults.

    Fingerprints use only these, so that adding a field with a default does not change any.
    """
    defaults = vars(type(settings)())
    return {name: value for name, value in vars(settings).items() if value != defaults[name]}


def file_hash(path: Path, method: str = "sha256") -> str:
    """The checksum of a file, read in blocks."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, method).hexdigest()


def new_lines(path: Path, offset: int) -> tuple[list[bytes], int]:
    """The whole lines of a growing file from an offset on, and the offset after them; no lines if there is no file."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            *lines, rest = file.read().split(b"\n")
            return lines, file.tell() - len(rest)
    except FileNotFoundError:
        return [], offset


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


def require_writable(directory: Path) -> None:
    """Makes a directory unless it is there, and tries to write in it.

    Raises:
        RecipeError: nothing can be written in it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise RecipeError(f"{directory} cannot be written ({error.strerror}): name another directory.") from None


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


def write_json(path: Path, value: object) -> None:
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
