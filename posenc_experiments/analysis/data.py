"""The binarized data of an experiment: what its model reads, and how long its training's sentences are."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import file_hash
from posenc_experiments.data import prepare
from posenc_experiments.data.prepared import index_file, read_sizes
from posenc_experiments.evaluation.results import Result, text_file
from posenc_experiments.experiment.layout import GENERATE_SCRIPT


@dataclass(frozen=True)
class Data:
    """A directory that fairseq-preprocess wrote, and one of its subsets."""

    directory: Path
    source: str
    target: str
    subset: str = "test"

    def index(self, split: str, side: str) -> Path:
        """fairseq's index file of a split."""
        return index_file(self.directory, split, f"{self.source}-{self.target}", side)

    def missing(self) -> Path | None:
        """The first file that is not there."""
        index = [self.index(self.subset, side) for side in (self.source, self.target)]
        dictionaries = prepare.dictionaries(self.directory, self.source, self.target)
        needed = [*dictionaries, *index, *(path.with_suffix(".bin") for path in index)]
        return next((path for path in needed if not path.is_file()), None)

    def vocabulary(self) -> list[str]:
        """Checksums of the dictionaries."""
        return prepare.vocabulary(self.directory, self.source, self.target)

    def has_vocabulary_of(self, result: Result) -> bool:
        """Whether an experiment was trained with these dictionaries, as far as it records them."""
        return result.vocabulary in (None, self.vocabulary())

    def contents(self) -> list[Any]:
        """What identifies this data and subset."""
        index = [self.index(self.subset, side) for side in (self.source, self.target)]
        return [self.subset, self.vocabulary(), [file_hash(path.with_suffix(".bin")) for path in index]]

    def longer_than_training(self, lines: int) -> NDArray[np.bool_] | None:
        """Of each sentence of the subset, whether its source has more tokens than any in the training data; None if the
        training data is not there, or the subset has not so many lines.
        """
        train, test = (self.index(split, self.source) for split in ("train", self.subset))
        if not train.is_file() or not test.is_file():
            return None
        sizes = read_sizes(test)
        return None if len(sizes) != lines else np.asarray(sizes > read_sizes(train).max(initial=0))


def data_of(result: Result, binarized: Path | None) -> Data | None:
    """The data that an experiment's test set was translated from, as TEST.generate.sh names it, or the same subset in
    `binarized`; None if it is not there, or was prepared again with other dictionaries.

    Raises:
        RecipeError: `binarized` lacks a file, or its dictionaries are not those of the experiment's training.
    """
    source, _, target = result.pair.partition("-")
    words = script_words(text_file(result, GENERATE_SCRIPT))
    subset = words[words.index("--gen-subset") + 1] if "--gen-subset" in words[:-1] else "test"
    if binarized is None:
        named = [following for word, following in pairwise(words) if word == "fairseq_cli.generate"]
        if not named:
            return None
        data = Data(Path(named[0]), source, target, subset)
        return None if data.missing() or not data.has_vocabulary_of(result) else data
    data = required(Data(binarized, source, target, subset))
    if not data.has_vocabulary_of(result):
        raise RecipeError(
            f"--data {binarized}: these are not the dictionaries that {result.directory} was trained with; name the "
            "data of its training."
        )
    return data


def required(data: Data) -> Data:
    """The same data, all of whose files are there.

    Raises:
        RecipeError: one is missing.
    """
    if missing := data.missing():
        raise RecipeError(
            f"--data {data.directory}: {missing.name} is missing; name the directory of fairseq-preprocess."
        )
    return data


def script_words(script: Path) -> list[str]:
    """The words of a script that the pipeline wrote; none if it is missing or damaged."""
    try:
        return shlex.split(script.read_text(encoding="utf-8"), comments=True)
    except (OSError, ValueError):  # ValueError: cut within quotes, or no UTF-8
        return []
