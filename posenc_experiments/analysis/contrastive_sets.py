"""Reads contrastive sets: this project's own, LingEval97's, ContraPro's and DistilLingEval's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.data import text
from posenc_experiments.data.tsv import read_rows
from posenc_experiments.evaluation.results import read_lines

#: of a set in this project's format; recipes/quickstart/grammar.py writes one
COLUMNS = ("phenomenon", "distance", "source", "correct", "contrastive")
#: files of a DistilLingEval set, without the languages that their names end in
DISTIL = ("src", "tgt.correct", "tgt.incorrect")


@dataclass(frozen=True)
class Contrast:
    """A source, its correct target, and the same target with an error, or several such targets.

    Args:
        distance: between the words that the error concerns; None if the set has none.
        where: its place in a file, for messages.
        before: the sources and correct targets of the sentences before it in its document, in their order.
    """

    phenomenon: str
    distance: int | None
    source: str
    correct: str
    contrastives: tuple[str, ...]
    where: str
    before: tuple[tuple[str, str], ...] = ()


def read_set(path: Path, context: Sequence[Path] = ()) -> list[Contrast]:
    """The pairs of a contrastive set.

    Args:
        path: .json of LingEval97 or ContraPro; a directory of DistilLingEval, or one that holds several; or a table of
            COLUMNS.
        context: for source and target, a file with the N sentences before each target: N lines for a correct one, then
            the same N for each of its contrastive ones.

    Raises:
        RecipeError: the set cannot be read, or has a line that is not of its format.
    """
    read = _distil_lingeval if path.is_dir() else _json if path.suffix == ".json" else _table
    contrasts = list(read(path))
    if not contrasts:
        raise RecipeError(f"{path} holds no contrastive pair: name one of the sets in docs/analysis.md.")
    for one in contrasts:
        if one.correct.split() in map(str.split, one.contrastives):
            raise RecipeError(f"{one.where}: its correct and its contrastive target are equal; fix or remove it.")
    return list(_with_context(contrasts, context)) if context else contrasts


def _with_context(contrasts: list[Contrast], paths: Sequence[Path]) -> Iterator[Contrast]:
    lines = list(text.pairs(paths, *map(text.clean_eval_lines, paths)))
    size, rest = divmod(len(lines), sum(1 + len(one.contrastives) for one in contrasts))
    remaining = iter(lines)
    for one in contrasts:
        befores = {tuple(islice(remaining, size)) for _ in (one.correct, *one.contrastives)}
        if rest or not size or len(befores) > 1:
            raise RecipeError(
                f"{paths[0]} ({len(lines):,} lines) must have N lines for each target of the set, the same for all "
                f"targets of an entry, unlike those for {one.where}: extract both files of the context again."
            )
        yield replace(one, before=befores.pop())


def _table(path: Path) -> Iterator[Contrast]:
    for where, (phenomenon, distance, *texts) in read_rows(path, COLUMNS):
        if not re.fullmatch(r"-|\d{1,9}", distance):
            raise RecipeError(f"{where}: its distance is {distance!r}; write a number of words, or - if there is none.")
        source, correct, contrastive = texts
        yield Contrast(phenomenon, None if distance == "-" else int(distance), source, correct, (contrastive,), where)


def _json(path: Path) -> Iterator[Contrast]:
    where = str(path)
    try:
        for number, entry in enumerate(json.loads(path.read_bytes()), 1):
            where = f"{path}, entry {number}"
            if "ref segment" in entry:  # ContraPro's: its authors count an entry as right if all comparisons are
                first, *others = (error["contrastive"] for error in entry["errors"])
                texts = entry["src segment"], entry["ref segment"], (first, *others)
                "".join((*texts[:2], *texts[2]))  # TypeError if one is not text
                yield Contrast(entry["ref pronoun"].lower(), int(entry["ante distance"]), *texts, where)
                continue
            for error in entry["errors"]:
                distance = None if error.get("distance") is None else int(error["distance"])
                texts = entry["source"], entry["reference"], (error["contrastive"],)
                yield Contrast(error["type"], distance, *texts, where)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise RecipeError(f"{where}: this is not as LingEval97 or ContraPro has it ({error!r}): download it.") from None


def _distil_lingeval(path: Path) -> Iterator[Contrast]:
    for directory in (path, *sorted(one for one in path.iterdir() if one.is_dir())):
        paths = [file for name in DISTIL for file in sorted(directory.glob(f"{name}.*"))]
        texts = [read_lines(file) for file in paths]
        if paths and (len(paths) != len(DISTIL) or len(set(map(len, texts))) > 1):
            files = ", ".join(f"{name}.*" for name in DISTIL)
            raise RecipeError(f"{directory} must have one file each {files}, of equally many lines: download it again.")
        for number, (source, correct, contrastive) in enumerate(zip(*texts, strict=True), 1):
            where = f"{paths[2]}, line {number}"
            yield Contrast(directory.resolve().name, None, source, correct, (contrastive,), where)
