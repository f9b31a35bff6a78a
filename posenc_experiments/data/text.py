"""Reads parallel text so that the two sides stay aligned: only a newline ends a line.

`str.splitlines`, universal newlines and many tools also end lines at a carriage return, U+2028 and others, which
silently misaligns the two sides. So files are read as bytes, split at newlines, and only then decoded.
"""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import AnyStr, BinaryIO, cast

from posenc_experiments.base.errors import RecipeError


@contextmanager
def open_raw(path: Path) -> Iterator[BinaryIO]:
    """Opens a raw file, plain or compressed (`.gz`); RecipeError if it is missing or truncated."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            yield cast(BinaryIO, file)
    except FileNotFoundError:
        raise RecipeError(f"{path} is missing: run the stage download, or put it back.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RecipeError(f"{path} is not a whole gzip file ({error}): replace it.") from None


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file without their newlines; RecipeError if the file is missing or truncated."""
    with open_raw(path) as file:
        for line in file:
            yield line.removesuffix(b"\n")


def pairs(paths: Sequence[Path], *sides: Iterator[AnyStr]) -> Iterator[tuple[AnyStr, AnyStr]]:
    """The pairs of the lines of two files; RecipeError, naming both, if one has more lines."""
    for number, pair in enumerate(zip_longest(*sides), 1):
        if None in pair:
            counts = [number - (line is None) + sum(1 for _ in side) for line, side in zip(pair, sides, strict=True)]
            raise RecipeError(
                f"{paths[0]} has {counts[0]:,} lines and {paths[1]} has {counts[1]:,}: they are not translations of "
                "each other line by line; fix or replace them."
            )
        yield pair[0], pair[1]


def clean(text: str) -> str:
    """The text with each run of white space, line separators and carriage returns included, as a single space."""
    return " ".join(text.split())


def clean_eval_lines(path: Path) -> Iterator[str]:
    """The cleaned lines of one side of a validation or test set; RecipeError names a line that is not UTF-8."""
    for number, line in enumerate(read_lines(path), 1):
        yield clean(decode(line, path, number))


def decode(line: bytes, path: Path, number: int) -> str:
    """The text of a line of a validation or test set; RecipeError, with file and line number, if it is not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecipeError(
            f"{path}, line {number}: this is not UTF-8 ({error.reason}); fix the line, because no line of a "
            "validation or test set is dropped."
        ) from None
