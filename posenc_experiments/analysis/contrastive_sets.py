"""Reads contrastive sets: this project's own, LingEval97's and DistilLingEval's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.data.tsv import read_rows
from posenc_experiments.evaluation.results import read_lines

#: of a set in this project's format; recipes/quickstart/grammar.py writes one
COLUMNS = ("phenomenon", "distance", "source", "correct", "contrastive")
#: files of a DistilLingEval set, without the languages that their names end in
DISTIL = ("src", "tgt.correct", "tgt.incorrect")


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
    read = _distil_lingeval if path.is_dir() else _lingeval97 if path.suffix == ".json" else _table
    contrasts = list(read(path))
    if not contrasts:
        raise RecipeError(f"{path} holds no contrastive pair: name one of the sets in docs/analysis.md.")
    for one in contrasts:
        if one.correct.split() == one.contrastive.split():
            raise RecipeError(f"{one.where}: its correct and its contrastive target are equal; fix or remove it.")
    return contrasts


def _table(path: Path) -> Iterator[Contrast]:
    for where, (phenomenon, distance, *texts) in read_rows(path, COLUMNS):
        if not re.fullmatch(r"-|\d{1,9}", distance):
            raise RecipeError(f"{where}: its distance is {distance!r}; write a number of words, or - if there is none.")
        source, correct, contrastive = texts
        yield Contrast(phenomenon, None if distance == "-" else int(distance), source, correct, contrastive, where)


def _lingeval97(path: Path) -> Iterator[Contrast]:
    where = str(path)
    try:
        for number, entry in enumerate(json.loads(path.read_bytes()), 1):
            where = f"{path}, entry {number}"
            for error in entry["errors"]:
                distance = None if error.get("distance") is None else int(error["distance"])
                texts = entry["source"], entry["reference"], error["contrastive"]
                yield Contrast(error["type"], distance, *texts, where)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise RecipeError(f"{where}: this is not as LingEval97 has it ({error!r}): download it again.") from None


def _distil_lingeval(path: Path) -> Iterator[Contrast]:
    for directory in (path, *sorted(one for one in path.iterdir() if one.is_dir())):
        paths = [file for name in DISTIL for file in sorted(directory.glob(f"{name}.*"))]
        texts = [read_lines(file) for file in paths]
        if paths and (len(paths) != len(DISTIL) or len(set(map(len, texts))) > 1):
            files = ", ".join(f"{name}.*" for name in DISTIL)
            raise RecipeError(f"{directory} must have one file each {files}, of equally many lines: download it again.")
        for number, (source, correct, contrastive) in enumerate(zip(*texts, strict=True), 1):
            yield Contrast(directory.resolve().name, None, source, correct, contrastive, f"{paths[2]}, line {number}")
