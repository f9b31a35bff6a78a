"""Reading parallel text without losing count: a line ends at a newline and at nothing else.

`str.splitlines`, text files with universal newlines and many tools also end lines at a carriage return,
U+2028 and others, and from there on two sides are misaligned without a word. So files are read as bytes,
split at newlines, and only then decoded.
"""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, cast

from recipes.common.errors import RecipeError


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


def read_pairs(source: Sequence[Path], target: Sequence[Path]) -> Iterator[tuple[bytes, bytes]]:
    """Lines of both sides together, file by file; RecipeError with both counts where a file pair's differ."""
    for one, other in zip(source, target, strict=True):
        ours, theirs = read_lines(one), read_lines(other)
        for number, (left, right) in enumerate(zip_longest(ours, theirs)):
            if left is None or right is None:
                left_count = number + (left is not None) + sum(1 for _ in ours)
                right_count = number + (right is not None) + sum(1 for _ in theirs)
                raise RecipeError(
                    f"{one} has {left_count:,} lines and {other} has {right_count:,}: they are not "
                    f"translations of each other "
                    "line by line; mend or replace them."
                )
            yield left, right


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


@dataclass
class TrainCounts:
    """What happened to the training pairs; `first_bad_utf8` is the number of a line, from 1, over all files
    together.
    """

    read: int = 0
    bad_utf8: int = 0
    first_bad_utf8: int | None = None
    empty: int = 0
    too_long: int = 0
    odd_separators: int = 0
    kept: int = 0

    def sentences(self, max_tokens: int) -> list[str]:
        """The counts in words."""
        said = [f"{self.read:,} pairs read, {self.kept:,} kept"]
        if self.bad_utf8:
            said.append(f"{self.bad_utf8:,} dropped for bad UTF-8, first at line {self.first_bad_utf8:,}")
        if self.empty:
            said.append(f"{self.empty:,} dropped for an empty side")
        if self.too_long:
            said.append(f"{self.too_long:,} dropped as longer than {max_tokens} tokens")
        if self.odd_separators:
            said.append(f"{self.odd_separators:,} had odd line separators, read as spaces")
        return said


@dataclass
class EvalCounts:
    """What was found in a validation or test set, of which no line is ever dropped; lines are numbered from
    1.
    """

    lines: int = 0
    empty_source: list[int] = field(default_factory=list)
    empty_target: list[int] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    odd_separators: int = 0

    def sentences(self, max_tokens: int) -> list[str]:
        """The counts in words."""
        said = [f"{self.lines:,} pairs"]
        if self.empty_source:
            said.append(
                f"{len(self.empty_source):,} empty source lines (first {self.empty_source[0]:,}) get an "
                f"empty translation"
            )
        if self.empty_target:
            said.append(f"{len(self.empty_target):,} empty target lines (first {self.empty_target[0]:,})")
        if self.cut:
            said.append(f"{len(self.cut):,} pairs (first {self.cut[0]:,}) cut to {max_tokens:,} tokens for the model")
        if self.odd_separators:
            said.append(f"{self.odd_separators:,} had odd line separators, read as spaces")
        return said


def clean_training_pairs(
    source: Sequence[Path], target: Sequence[Path], counts: TrainCounts
) -> Iterator[tuple[str, str]]:
    """The pairs fit for training, streamed; `counts` is kept up to date."""
    for left, right in read_pairs(source, target):
        counts.read += 1
        try:
            pair = clean(left.decode("utf-8")), clean(right.decode("utf-8"))
        except UnicodeDecodeError:
            counts.bad_utf8 += 1
            counts.first_bad_utf8 = counts.first_bad_utf8 or counts.read
            continue
        counts.odd_separators += odd_separators(left) or odd_separators(right)
        if all(pair):
            yield pair
        else:
            counts.empty += 1


def clean_eval_lines(path: Path) -> Iterator[str]:
    """Every line of one side of a validation or test set; RecipeError naming file and line at bad UTF-8."""
    for number, line in enumerate(read_lines(path), 1):
        try:
            yield clean(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise RecipeError(
                f"{path}, line {number}: this is not UTF-8 ({error.reason}); mend the line, for none of "
                f"a test set may be dropped."
            ) from None


def as_dict(counts: TrainCounts | EvalCounts) -> dict[str, object]:
    """For prepare.json."""
    return asdict(counts)
