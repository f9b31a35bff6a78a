"""Scores given targets under trained models: experiments of this project, or checkpoints with their data."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fairseq_posenc.scoring import log_probabilities
from fairseq_posenc.trained import load_trained
from posenc_experiments.analysis.data import data_of
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.data import context, prepared, text
from posenc_experiments.evaluation.results import bleu_results, read_lines, read_results
from posenc_experiments.evaluation.statistics.pooling import setting_of
from posenc_experiments.experiment.layout import ExperimentDirectory


@dataclass(frozen=True)
class Pair:
    """A source and a target to score, as text; equal ones may have other places.

    Args:
        where: its place in a file, for messages.
        line: the line of the file, from 1.
        number: the target's number on that line, from 1.
        before: the sources and targets of the sentences before it in its document, in their order.
    """

    source: str
    target: str
    where: str = field(compare=False)
    line: int = 0
    number: int = 1
    before: tuple[tuple[str, str], ...] = ()


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a file with a source and its targets, separated by tabs, on each line.

    Raises:
        RecipeError: the file cannot be read, or a line has no target.
    """
    pairs = []
    for line, content in enumerate(read_lines(path), 1):
        source, *targets = content.split("\t")
        where = f"{path}, line {line}"
        if not targets:
            raise RecipeError(f"{where}: there is no target; put a tab between the source and each target.")
        pairs += [Pair(source, target, where, line, number) for number, target in enumerate(targets, 1)]
    return pairs


class Scored(NamedTuple):
    """The tokens of a target, </s> included, and the log-probability of each given those before it, in nats."""

    tokens: list[str]
    log_probabilities: NDArray[np.float64]


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
        RecipeError: there is no model or data.
    """
    directories = [path for path in paths if path.is_dir()]
    checkpoints = [path for path in paths if not path.is_dir()]
    if checkpoints and binarized is None:
        raise RecipeError(f"{checkpoints[0]} is a checkpoint: name the directory of fairseq-preprocess with --data.")
    models: list[tuple[str, str, Path, Any]] = []
    # An experiment has a score for each test set.
    results = {result.directory: result for result in bleu_results(read_results(directories))} if directories else {}
    for directory, result in results.items():
        checkpoint, data = ExperimentDirectory(directory).averaged, data_of(result, binarized)
        if data is None or not checkpoint.is_file():
            raise RecipeError(
                f"{directory}: {checkpoint.name}, or the binarized data that it was trained on, is not there or was "
                "made again: run the stages train..average, or name the data with --data."
            )
        models.append((setting_of(result).long_name, f"seed {result.seed}", checkpoint, data.directory))
    models += [(path.name, str(path), path, binarized) for path in checkpoints]
    names = Counter(name for name, *_ in models)
    return [Model(name if names[name] == 1 else f"{name} {which}", *files) for name, which, *files in models]


def score_targets(model: Model, pairs: Sequence[Pair], say: Callable[[str], None], cpu: bool = False) -> list[Scored]:
    """Scores each pair's target given its source.

    Text is split into subwords as the prepared data says; if this project did not prepare it, at spaces. Sentences
    before are joined with a pair's as in training, and only the pair's own target is scored.

    Args:
        say: takes a warning of words that the dictionary lacks.
        cpu: whether the model computes on the CPU even where there is a GPU.

    Raises:
        CheckpointError: the checkpoint cannot be used, or does not fit the dictionaries.
        RecipeError: a side is empty or longer than the model accepts, the prepared data is damaged, or a pair has
            sentences before it, but the model was trained without.
    """
    trained = load_trained(model.checkpoint, model.data, cpu=cpu)
    knows_context = all(context.SEPARATOR in dictionary for dictionary in (trained.source, trained.target))
    if not knows_context and any(pair.before for pair in pairs):
        raise RecipeError(
            f"{model.checkpoint} was trained without context (its dictionaries lack {context.SEPARATOR}): leave out "
            "--context, or name a model of a recipe with 'context: 1'."
        )
    languages = (trained.task.cfg.source_lang, trained.task.cfg.target_lang)
    joined, own_lengths = zip(*_encode(model.data, languages, pairs), strict=True)
    sides = list(zip(*joined, strict=True))
    longest = trained.model.max_positions()
    for side, tokens, most in zip(("source", "target"), sides, longest, strict=True):
        for pair, words in zip(pairs, tokens, strict=True):
            if not 0 < len(words) < most:
                raise RecipeError(
                    f"{pair.where}: its {side} has {len(words) + 1} tokens with </s>, and {model.checkpoint} takes 2 "
                    f"to {most}; change it, or leave the line out."
                )
    sources, targets = (
        [torch.tensor([*map(dictionary.index, words), dictionary.eos()]) for words in tokens]
        for dictionary, tokens in zip((trained.source, trained.target), sides, strict=True)
    )
    scores = log_probabilities(trained, sources, targets)
    own = [target[-length - 1 :] for target, length in zip(targets, own_lengths, strict=True)]  # with </s>
    unknown = [pair.where for pair, target in zip(pairs, own, strict=True) if trained.target.unk() in target]
    if unknown:
        say(
            f"{len(unknown):,} of {len(pairs):,} targets have words that the dictionary lacks, which are scored as "
            f"<unk>; the first is {unknown[0]}"
        )
    return [
        Scored([*words, trained.target.eos_word][-len(target) :], score[-len(target) :].astype(float))
        for words, score, target in zip(sides[1], scores, own, strict=True)
    ]


def _encode(
    binarized: Path, languages: Sequence[str], pairs: Sequence[Pair]
) -> Iterator[tuple[list[context.Tokens], int]]:
    """The tokens of both sides of each pair, behind those of the sentences before, joined as in training; and how many
    tokens the target itself has.
    """
    subwords = [prepared.subwords_of(binarized, language) for language in languages]
    settings = subwords[0].settings
    # A recipe's model has seen one sentence before; other models may have seen more, of any length.
    nearest, limit = (-settings.context, settings.max_tokens) if settings.context else (None, sys.maxsize)

    def tokens(*texts: str) -> list[context.Tokens]:
        return [next(one.encode([text.clean(side)])) for one, side in zip(subwords, texts, strict=True)]

    for pair in pairs:
        joined = own = tokens(pair.source, pair.target)
        for before in reversed(pair.before[nearest:]):
            joined = context.join(list(zip(tokens(*before), joined, strict=True)), limit)
        yield joined, len(own[1])
