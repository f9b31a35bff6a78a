"""Batches of a binarized corpus, of random sentences with realistic lengths, or of sentences of one length."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import options
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor

from .models import MAX_POSITIONS, SEED
from .rounds import BenchmarkError

#: lengths of random sentences, similar to news text in subwords: 26 tokens on average, some over 100
MEDIAN_LENGTH, LENGTH_SPREAD, SIDES_SPREAD, LONGEST = 22, 0.6, 0.15, 200
SENTENCES, VOCABULARY = 20_000, 8000


@dataclass(frozen=True)
class Corpus:
    """A corpus with its fairseq task: pairs to train on, and pairs to translate."""

    name: str
    task: TranslationTask
    train: Any
    test: Any

    def batches(self, dataset: Any, count: int, longest: int = MAX_POSITIONS, **limits: Any) -> list[Any]:
        """Batches of pairs as fairseq makes them; repeats the data if there are too few.

        Args:
            dataset: pairs of this corpus.
            count: number of batches.
            longest: the length of the longest sentence; longer ones are left out.
            limits: those of a batch, as arguments of ``get_batch_iterator``.

        Raises:
            BenchmarkError: all sentences are longer.
        """
        iterator = self.task.get_batch_iterator(
            dataset,
            max_positions=(longest, longest),
            ignore_invalid_inputs=True,
            seed=SEED,
            disable_iterator_cache=True,
            **limits,
        )
        batches: list[Any] = []
        while len(batches) < count:
            epoch = list(iterator.next_epoch_itr(shuffle=True))
            if not epoch:
                raise BenchmarkError(f"{self.name} has no sentence of up to {longest} tokens: increase --tokens.")
            batches += epoch
        return batches[:count]


def load_corpus(data: Path | None) -> Corpus:
    """Loads data of fairseq-preprocess; or makes random sentences, if there is none.

    The set to translate is the first of test, validation and training set that exists. Random sentences have the
    lengths of news text in subwords: those of sources are log-normal, and targets are some per cent longer or shorter.
    Words are uniformly distributed, since the time of a Transformer does not depend on them.

    Raises:
        BenchmarkError: the directory has no training set, or cannot be read.
    """
    if data is None:
        task, generator = synthetic_task(), torch.Generator().manual_seed(SEED)
        lengths = MEDIAN_LENGTH * torch.exp(LENGTH_SPREAD * torch.randn(SENTENCES, generator=generator))
        targets = lengths * torch.exp(SIDES_SPREAD * torch.randn(SENTENCES, generator=generator))
        sources, targets = (side.round().clamp(2, LONGEST).long() for side in (lengths, targets))
        pairs = random_pairs(task, sources.tolist(), targets.tolist(), SEED)
        return Corpus("synthetic", task, pairs, pairs)
    fix = "give a directory that fairseq-preprocess wrote, with a training set."
    try:
        arguments = options.parse_args_and_arch(
            options.get_training_parser(), [str(data), "--task", "translation", "--arch", "transformer"]
        )
        task = TranslationTask.setup_task(convert_namespace_to_omegaconf(arguments).task)
        task.load_dataset("train")
    except Exception as error:  # fairseq raises plain Exceptions here
        raise BenchmarkError(f"--data {data} cannot be read ({type(error).__name__}: {error}): {fix}") from error
    for split in ("test", "valid", "train"):
        try:
            task.load_dataset(split)
        except FileNotFoundError:
            continue
        break
    return Corpus(data.name, task, task.dataset("train"), task.dataset(split))


def synthetic_task() -> TranslationTask:
    """A translation task with a joint dictionary of random words."""
    dictionary = Dictionary()
    for number in range(VOCABULARY - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return TranslationTask(TranslationConfig(), dictionary, dictionary)


def random_pairs(task: TranslationTask, sources: list[int], targets: list[int], seed: int) -> LanguagePairDataset:
    """Random pairs of these lengths, including </s>."""
    generator = torch.Generator().manual_seed(seed)
    dictionary = task.source_dictionary

    def sentences(lengths: list[int]) -> list[Tensor]:
        words = torch.randint(dictionary.nspecial, len(dictionary), (sum(lengths),), generator=generator)
        found = list(words.split(lengths))
        for sentence in found:
            sentence[-1] = dictionary.eos()
        return found

    return LanguagePairDataset(
        sentences(sources), sources, dictionary, sentences(targets), targets, task.target_dictionary
    )


def fixed_batch(task: TranslationTask, length: int, tokens: int, seed: int) -> Any:
    """A batch of max(1, tokens // length) random pairs, each side of ``length`` tokens including </s>."""
    lengths = [length] * max(1, tokens // length)
    pairs = random_pairs(task, lengths, lengths, seed)
    return pairs.collater([pairs[number] for number in range(len(pairs))])
