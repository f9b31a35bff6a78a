"""Scores given targets under trained models: experiments of this project, or checkpoints with their data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fairseq_posenc.scoring import log_probabilities
from fairseq_posenc.trained import load_trained
from posenc_experiments.analysis.data import data_of
from posenc_experiments.analysis.pairs import Pair
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.data import prepare, text
from posenc_experiments.evaluation.pooling import long_name
from posenc_experiments.evaluation.results import of_tests, read_results
from posenc_experiments.experiment.layout import ExperimentDirectory


@dataclass(frozen=True)
class Scored:
    """The tokens of a target, </s> included, and the log-probability of each given those before it, in nats."""

    tokens: list[str]
    log_probabilities: NDArray[np.float32]
    unknown: int  # tokens that the dictionary lacks

    @property
    def sum(self) -> float:
        return float(self.log_probabilities.sum(dtype=np.float64))

    @property
    def mean(self) -> float:
        """The sum divided by the number of tokens: the score of fairseq-generate --score-reference, there in bits."""
        return self.sum / len(self.tokens)


@dataclass(frozen=True)
class Model:
    """A checkpoint, its binarized data, and its name in tables."""

    name: str
    checkpoint: Path
    data: Path


def find_models(paths: Sequence[Path], binarized: Path | None = None) -> list[Model]:
    """The models of experiment directories (or of directories that hold some), in natural order, and of checkpoints.

    Args:
        binarized: what fairseq-preprocess wrote; experiments know their own.

    Raises:
        RecipeError: there is no such file, or no model or data.
    """
    found: list[tuple[str, str, Path, Path]] = []
    directories = [path for path in paths if path.is_dir()]
    for result in of_tests(read_results(directories)) if directories else []:
        checkpoint = ExperimentDirectory(result.directory).averaged
        data = data_of(result, binarized)
        if not checkpoint.is_file():
            raise RecipeError(f"{checkpoint} is missing: run the stages train..average, or leave the directory out.")
        if data is None:
            raise RecipeError(
                f"{result.directory}: the binarized data that it was trained on is not there, or was prepared again "
                "with other dictionaries: name it with --data."
            )
        model = long_name(result), f"seed {result.seed}", checkpoint, data.directory
        if model not in found:  # an experiment has a score for each test set
            found.append(model)
    for path in (path for path in paths if not path.is_dir()):
        if not path.is_file():
            raise RecipeError(f"{path}: there is no such experiment directory or checkpoint.")
        if binarized is None:
            raise RecipeError(f"{path} is a checkpoint: name the directory of fairseq-preprocess with --data.")
        found.append((path.name, str(path), path, binarized))
    several = Counter(name for name, *_ in found)
    return [
        Model(name if several[name] == 1 else f"{name} {which}", checkpoint, data)
        for name, which, checkpoint, data in found
    ]


def score_targets(
    model: Model, pairs: Sequence[Pair], progress: Callable[[int, int], None] | None = None, cpu: bool = False
) -> list[Scored]:
    """Scores each pair's target given its source.

    Text is split into subwords as the prepared data says; if this project did not prepare it, at spaces.

    Args:
        progress: is called with the number of targets done, and of all.
        cpu: whether the model computes on the CPU even where there is a GPU.

    Raises:
        CheckpointError: the checkpoint cannot be used, or does not fit the dictionaries.
        RecipeError: a side is empty or longer than the model accepts, or the prepared data is damaged.
    """
    trained = load_trained(model.checkpoint, model.data, cpu=cpu)
    sides: list[list[list[str]]] = []
    for language, lines in (
        (trained.task.cfg.source_lang, [pair.source for pair in pairs]),
        (trained.task.cfg.target_lang, [pair.target for pair in pairs]),
    ):
        sides.append(list(prepare.subwords_of(model.data, language).encode(map(text.clean, lines))))
    longest = trained.model.max_positions()
    for side, tokens, most in zip(("source", "target"), sides, longest, strict=True):
        for pair, words in zip(pairs, tokens, strict=True):
            if not words:
                raise RecipeError(f"{pair.where}: its {side} is empty; fill it in, or leave the line out.")
            if len(words) >= most:
                raise RecipeError(
                    f"{pair.where}: its {side} has {len(words) + 1} tokens with </s>, and {model.checkpoint} takes "
                    f"{most} at most; shorten it, or leave the line out."
                )
    sources, targets = (
        [torch.tensor([*map(dictionary.index, words), dictionary.eos()]) for words in tokens]
        for dictionary, tokens in zip((trained.source, trained.target), sides, strict=True)
    )
    scores = log_probabilities(trained, sources, targets, progress=progress)
    end, unk = trained.target.eos_word, trained.target.unk()
    return [
        Scored([*words, end], score, int((target == unk).sum()))
        for words, target, score in zip(sides[1], targets, scores, strict=True)
    ]


def unknown_words(pairs: Sequence[Pair], scores: Sequence[Scored]) -> str | None:
    """A warning if targets have words that the dictionary lacks."""
    found = [pair.where for pair, score in zip(pairs, scores, strict=True) if score.unknown]
    if not found:
        return None
    return (
        f"{len(found):,} of {len(pairs):,} targets have words that the dictionary lacks, which are scored as <unk>; "
        f"the first is {found[0]}"
    )
