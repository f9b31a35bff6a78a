"""Reads contrastive sets: this project's own, LingEval97's and DistilLingEval's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from posenc_experiments.analysis.pairs import lines_of
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.data.tsv import read_rows

#: of a set in this project's format; recipes/quickstart/grammar.py writes one
COLUMNS = ("phenomenon", "distance", "source", "correct", "contrastive")
#: files of a DistilLingEval set, without the languages that their names end in
DISTIL = ("src", "tgt.correct", "tgt.incorrect")
#: the phenomenon of the row of the whole set, and the distance of a row of all distances
ALL = "all"


@dataclass(frozen=True)
class Contrast:
    """A source, its correct target, and the same target with an error.

    Args:
        distance: between the words that the error concerns; None if the set has none.
        where: its place in a file, for messages.
    """

    phenomenon: str
    distance: int | None
    source: str
    correct: str
    contrastive: str
    where: str


def read_set(path: Path) -> list[Contrast]:
    """The pairs of a contrastive set.

    Args:
        path: LingEval97's .json; a directory of DistilLingEval, or one that holds several; or a table of COLUMNS.

    Raises:
        RecipeError: the set cannot be read, or has a line that is not of its format.
    """
    if path.is_dir():
        found = list(_distil_lingeval(path))
    elif path.suffix == ".json":
        found = list(_lingeval97(path))
    elif path.is_file():
        found = list(_table(path))
    else:
        raise RecipeError(f"{path}: there is no such contrastive set: name a .tsv, a .json or a directory.")
    if not found:
        raise RecipeError(f"{path} holds no contrastive pair: write one on each line below the header.")
    for one in found:
        if one.phenomenon == ALL:
            raise RecipeError(f"{one.where}: its phenomenon is '{ALL}', the name of the whole set's row; rename it.")
        if one.correct.split() == one.contrastive.split():
            raise RecipeError(f"{one.where}: its correct and its contrastive target are equal; fix or remove it.")
    return found


def _table(path: Path) -> Iterator[Contrast]:
    for where, (phenomenon, distance, *texts) in read_rows(path, COLUMNS):
        if not re.fullmatch(r"-|\d{1,9}", distance):
            raise RecipeError(f"{where}: its distance is {distance!r}; write a number of words, or - if there is none.")
        source, correct, contrastive = texts
        yield Contrast(phenomenon, None if distance == "-" else int(distance), source, correct, contrastive, where)


def _lingeval97(path: Path) -> Iterator[Contrast]:
    where = str(path)
    try:
        for number, entry in enumerate(json.loads("\n".join(lines_of(path))), 1):
            where = f"{path}, entry {number}"
            source, correct = (entry[key] for key in ("source", "reference"))
            for count, error in enumerate(entry["errors"], 1):
                where = f"{path}, entry {number}, error {count}"
                distance = None if error.get("distance") is None else int(error["distance"])
                yield Contrast(error["type"], distance, source, correct, error["contrastive"], where)
    except json.JSONDecodeError as error:
        raise RecipeError(f"{path} is not JSON ({error}): download it again.") from None
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise RecipeError(f"{where}: this is not as LingEval97 has it ({error!r}): download it again.") from None


def _distil_lingeval(path: Path) -> Iterator[Contrast]:
    directories = [path] if _is_distil(path) else sorted(one for one in path.iterdir() if _is_distil(one))
    if not directories:
        files = ", ".join(f"{name}.*" for name in DISTIL)
        raise RecipeError(f"{path} is not DistilLingEval: neither it nor a directory in it has {files}.")
    for directory in directories:
        paths = []
        for name in DISTIL:
            candidates = sorted(directory.glob(f"{name}.*"))
            if len(candidates) != 1:
                raise RecipeError(f"{directory} has {len(candidates)} files {name}.* instead of one: leave one.")
            paths.append(candidates[0])
        texts = [lines_of(file) for file in paths]
        for file, lines in zip(paths[1:], texts[1:], strict=True):
            if len(lines) != len(texts[0]):
                raise RecipeError(
                    f"{file} has {len(lines):,} lines and {paths[0]} has {len(texts[0]):,}: download the set again."
                )
        for number, (source, correct, contrastive) in enumerate(zip(*texts, strict=True), 1):
            yield Contrast(directory.resolve().name, None, source, correct, contrastive, f"{paths[2]}, line {number}")


def _is_distil(path: Path) -> bool:
    return path.is_dir() and any(any(path.glob(f"{name}.*")) for name in DISTIL)
