"""Batches of a binarized corpus, of random sentences with realistic lengths, or of sentences of one length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from fairseq import options
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor

from .models import MAX_POSITIONS
from .results import BenchmarkError

#: lengths of random sentences, similar to news text in subwords: 26 tokens on average, some over 100
MEDIAN_LENGTH, LENGTH_SPREAD, SIDES_SPREAD, LONGEST = 22, 0.6, 0.15, 200
SENTENCES = 20_000


class Corpus:
    """A corpus with its fairseq task.

    Args:
        name: label of the results.
        task: the task with the dictionaries.
        train, test: pairs to train on and to translate.
    """

    def __init__(self, name: str, task: TranslationTask, train: Any, test: Any) -> None:
        self.name = name
        self.task = task
        self._train = train
        self._test = test

    def training_batches(self, count: int, tokens: int, seed: int) -> list[Any]:
        """Batches as in fairseq-train with ``--max-tokens``; repeats the data if there are too few."""
        # 8 is the default of fairseq-train.
        limits = {"max_tokens": tokens, "required_batch_size_multiple": 8}
        return self._batches(self._train, count, seed, min(tokens, MAX_POSITIONS), **limits)

    def generation_batches(self, count: int, sentences: int, seed: int) -> list[Any]:
        """Batches as in fairseq-generate with ``--batch-size``: sentences of similar length."""
        return self._batches(self._test, count, seed, MAX_POSITIONS, max_sentences=sentences)

    def _batches(self, dataset: Any, count: int, seed: int, longest: int, **limits: Any) -> list[Any]:
        iterator = self.task.get_batch_iterator(
            dataset,
            max_positions=(longest, longest),
            ignore_invalid_inputs=True,
            seed=seed,
            disable_iterator_cache=True,
            **limits,
        )
        batches: list[Any] = []
        while len(batches) < count:
            before = len(batches)
            for batch in iterator.next_epoch_itr(shuffle=True):
                if len(batches) < count:
                    batches.append(batch)
            if len(batches) == before:
                raise BenchmarkError(f"{self.name} has no sentence of up to {longest} tokens: increase --tokens.")
        return batches


def binarized_corpus(directory: Path, name: str) -> Corpus:
    """Loads data of fairseq-preprocess: the training set, and a set to translate.

    The set to translate is the first of test, validation and training set that exists.

    Raises:
        BenchmarkError: the directory has no training set, or cannot be read.
    """
    fix = "give a directory that fairseq-preprocess wrote, with a training set."
    try:
        arguments = options.parse_args_and_arch(
            options.get_training_parser(), [str(directory), "--task", "translation", "--arch", "transformer"]
        )
        task = TranslationTask.setup_task(convert_namespace_to_omegaconf(arguments).task)
        task.load_dataset("train")
    except Exception as error:  # fairseq raises plain Exceptions here
        raise BenchmarkError(f"--data {directory} cannot be read ({type(error).__name__}: {error}): {fix}") from error
    for split in ("test", "valid", "train"):
        try:
            task.load_dataset(split)
        except FileNotFoundError:
            continue
        break
    return Corpus(name, task, task.dataset("train"), task.dataset(split))


def synthetic_corpus(vocabulary: int, seed: int) -> Corpus:
    """Random sentences with the lengths of news text in subwords.

    The lengths of sources are log-normal, and targets are some per cent longer or shorter. Words are uniformly
    distributed, since the time of a Transformer does not depend on them.
    """
    task = synthetic_task(vocabulary)
    generator = torch.Generator().manual_seed(seed)
    lengths = MEDIAN_LENGTH * torch.exp(LENGTH_SPREAD * torch.randn(SENTENCES, generator=generator))
    targets = lengths * torch.exp(SIDES_SPREAD * torch.randn(SENTENCES, generator=generator))
    sides = [side.round().clamp(2, LONGEST).long().tolist() for side in (lengths, targets)]
    pairs = _pairs(task, sides[0], sides[1], generator)
    return Corpus("synthetic", task, pairs, pairs)


def synthetic_task(vocabulary: int) -> TranslationTask:
    """A translation task with a joint dictionary of ``vocabulary`` entries, including fairseq's four special ones."""
    dictionary = Dictionary()
    for number in range(vocabulary - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return TranslationTask(TranslationConfig(), dictionary, dictionary)


def fixed_batch(task: TranslationTask, length: int, tokens: int, seed: int) -> Any:
    """A batch of max(1, tokens // length) random pairs, each side of ``length`` tokens including </s>."""
    generator = torch.Generator().manual_seed(seed)
    count = max(1, tokens // length)
    pairs = _pairs(task, [length] * count, [length] * count, generator)
    return pairs.collater([pairs[number] for number in range(count)])


def _pairs(
    task: TranslationTask, sources: list[int], targets: list[int], generator: torch.Generator
) -> LanguagePairDataset:
    """Random pairs of these lengths, including </s>."""

    def sentences(lengths: list[int], dictionary: Dictionary) -> list[Tensor]:
        words = torch.randint(dictionary.nspecial, len(dictionary), (sum(lengths),), generator=generator)
        found = list(words.split(lengths))
        for sentence in found:
            sentence[-1] = dictionary.eos()
        return found

    return LanguagePairDataset(
        sentences(sources, task.source_dictionary),
        sources,
        task.source_dictionary,
        sentences(targets, task.target_dictionary),
        targets,
        task.target_dictionary,
    )


def words(batches: list[Any]) -> int:
    """The number of target tokens, which fairseq reports as words/s."""
    return sum(batch["ntokens"] for batch in batches)


def longest_target(batch: Any) -> int:
    """The number of tokens of the longest reference, without </s>."""
    return int(batch["target"].size(1)) - 1
