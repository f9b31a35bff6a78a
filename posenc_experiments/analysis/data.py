"""The binarized data of an experiment, which its model reads."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import file_hash
from posenc_experiments.data import prepared
from posenc_experiments.data.prepared import index_file
from posenc_experiments.evaluation.results import Result
from posenc_experiments.experiment.layout import GENERATE_SCRIPT, ExperimentDirectory


@dataclass(frozen=True)
class Data:
    """A directory that fairseq-preprocess wrote, and one of its subsets."""

    directory: Path
    source: str
    target: str
    subset: str = "test"

    def index(self) -> list[Path]:
        """fairseq's index files of the subset."""
        pair = f"{self.source}-{self.target}"
        return [index_file(self.directory, self.subset, pair, side) for side in (self.source, self.target)]

    def vocabulary(self) -> list[str]:
        """Checksums of the dictionaries."""
        return prepared.vocabulary(self.directory, self.source, self.target)

    def contents(self) -> list[object]:
        """What identifies this data and subset."""
        return [self.subset, self.vocabulary(), [file_hash(path.with_suffix(".bin")) for path in self.index()]]

    def problem(self, vocabulary: list[str] | None = None) -> str | None:
        """What a model of these dictionaries, as far as they are known, cannot use of it, and the fix."""
        index, binary = self.index(), [path.with_suffix(".bin") for path in self.index()]
        for path in (*prepared.dictionaries(self.directory, self.source, self.target), *index, *binary):
            if not path.is_file():
                return f"{path.name} is missing; name the directory of fairseq-preprocess."
        if vocabulary not in (None, self.vocabulary()):
            return "these are not the dictionaries of the training; name the data of the training."
        return None


def data_of(result: Result, binarized: Path | None) -> Data | None:
    """The data that an experiment's test set was translated from, as TEST.generate.sh names it, or the same subset in
    `binarized`; None if it is not there, or was prepared again with other dictionaries.

    Raises:
        RecipeError: `binarized` lacks a file, or its dictionaries are not those of the experiment's training.
    """
    source, _, target = result.pair.partition("-")
    script = ExperimentDirectory(result.directory).test_file(result.test, GENERATE_SCRIPT)
    following = dict(pairwise(script_words(script)))
    directory = binarized or following.get("fairseq_cli.generate")
    if directory is None:
        return None
    data = Data(Path(directory), source, target, following.get("--gen-subset", "test"))
    problem = data.problem(result.vocabulary)
    if problem and binarized is not None:
        raise RecipeError(f"--data {binarized}, for {result.directory}: {problem}")
    return None if problem else data


def script_words(script: Path) -> list[str]:
    """The words of a script that the pipeline wrote; none if it is missing or damaged."""
    try:
        return shlex.split(script.read_text(encoding="utf-8"), comments=True)
    except (OSError, ValueError):  # ValueError: cut within quotes, or no UTF-8
        return []
