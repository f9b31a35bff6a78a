"""Reading parallel text without losing count: a line ends at a newline and at nothing else.

`str.splitlines`, text files with universal newlines and many tools also end lines at a carriage return,
U+2028 and others, and from there on two sides are misaligned without a word. So files are read as bytes,
split at newlines, and only then decoded.
"""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from posenc_experiments.base.errors import RecipeError


def open_binary(path: Path) -> BinaryIO:
    """Opens plain or gzip-compressed (`.gz`) bytes."""
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else open(path, "rb")


@contextmanager
def open_raw(path: Path) -> Iterator[BinaryIO]:
    """Opens a raw file for reading; RecipeError if it is missing or truncated."""
    try:
        with open_binary(path) as file:
            yield file
    except FileNotFoundError:
        raise RecipeError(f"{path} is missing: run the stage download.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RecipeError(
            f"{path} is not a whole gzip file ({error}): delete it and run the stage download again."
        ) from None


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file without their newlines; RecipeError if the file is missing or truncated."""
    with open_raw(path) as file:
        for line in file:
            yield line.removesuffix(b"\n")


def clean(text: str) -> str:
    """White space of every kind, line separators and carriage returns included, as single spaces."""
    return " ".join(text.split())


def odd_separators(line: bytes) -> bool:
    """Whether other tools would see more than one line here; a carriage return at the end is only a DOS
    line's end.
    """
    line = line.removesuffix(b"\r")
    return any(separator in line for separator in ODD_SEPARATORS)


ODD_SEPARATORS = (
    b"\r",
    b"\x0b",
    b"\x0c",
    b"\x1c",
    b"\x1d",
    b"\x1e",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"\xe2\x80\xa9",
)


def clean_eval_lines(path: Path, name: str | None = None) -> Iterator[str]:
    """Every line of one side of a validation or test set; RecipeError naming file (or its `name`) and line at bad
    UTF-8.
    """
    for number, line in enumerate(read_lines(path), 1):
        try:
            yield clean(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise RecipeError(
                f"{name or path}, line {number}: this is not UTF-8 ({error.reason}); mend the line, for none of "
                f"a test set may be dropped."
            ) from None
