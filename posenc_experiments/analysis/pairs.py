"""Reads sources with given targets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from posenc_experiments.base.errors import RecipeError


@dataclass(frozen=True)
class Pair:
    """A source and a target to score, as text.

    Args:
        where: its place in a file, for messages.
        line: the line of the file, from 1.
        number: the target's number on that line, from 1.
    """

    source: str
    target: str
    where: str
    line: int = 0
    number: int = 1


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a file with a source and its targets, separated by tabs, on each line.

    Raises:
        RecipeError: the file cannot be read, or a line has no target.
    """
    pairs = []
    for line, content in enumerate(lines_of(path), 1):
        source, *targets = content.split("\t")
        where = f"{path}, line {line}"
        if not targets:
            raise RecipeError(f"{where}: there is no target; put a tab between the source and each target.")
        pairs += [Pair(source, target, where, line, number) for number, target in enumerate(targets, 1)]
    if not pairs:
        raise RecipeError(f"{path} is empty: write a source, a tab and a target on each line.")
    return pairs


def lines_of(path: Path) -> list[str]:
    """Reads the lines of a text file, split at newlines only.

    Raises:
        RecipeError: the file cannot be read, or is not UTF-8.
    """
    try:
        content = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise RecipeError(f"{path} cannot be read ({error.strerror}): name a text file.") from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is not UTF-8 ({error}): save it as UTF-8.") from None
    return [line.removesuffix("\r") for line in content.removesuffix("\n").split("\n")] if content else []
