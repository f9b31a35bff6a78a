"""Reads parallel text so that the two sides stay aligned: only a newline ends a line.

`str.splitlines`, universal newlines and many tools also end lines at a carriage return, U+2028 and others, which
silently misaligns the two sides. So files are read as bytes, split at newlines, and only then decoded.
"""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from posenc_experiments.base.errors import RecipeError


@contextmanager
def open_raw(path: Path, fix: str = "delete it and run the stage download again") -> Iterator[BinaryIO]:
    """Opens a raw file, plain or compressed (`.gz`); RecipeError if it is missing or, with this `fix`, truncated."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            yield cast(BinaryIO, file)
    except FileNotFoundError:
        raise RecipeError(f"{path} is missing: run the stage download.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RecipeError(f"{path} is not a whole gzip file ({error}): {fix}.") from None


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file without their newlines; RecipeError if the file is missing or truncated."""
    with open_raw(path) as file:
        for line in file:
            yield line.removesuffix(b"\n")


def clean(text: str) -> str:
    """The text with each run of white space, line separators and carriage returns included, as a single space."""
    return " ".join(text.split())


def clean_eval_lines(path: Path, name: str | None = None) -> Iterator[str]:
    """The cleaned lines of one side of a validation or test set.

    Raises:
        RecipeError: a line is not UTF-8; names the line and the file, as `name` if that is given.
    """
    for number, line in enumerate(read_lines(path), 1):
        try:
            yield clean(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise RecipeError(
                f"{name or path}, line {number}: this is not UTF-8 ({error.reason}); fix the line, because no line "
                "of a validation or test set is dropped."
            ) from None
