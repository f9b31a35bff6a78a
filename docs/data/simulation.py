"""Simulated scores with known variances, to measure the error rates of the test of a difference."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from posenc_experiments.evaluation.significance import Resampled

SENTENCES = 1000
MEAN = 30.0  # of every setting
SAMPLES = 500  # of the sentences: fewer than for real scores, to save time


class Sources(NamedTuple):
    """The standard deviations of what varies; those of sentences are of one sentence's score."""

    of_seed: float  # of a model's quality on any sentence
    of_system: float  # of a sentence for all seeds of a setting
    of_model: float  # of a sentence for one model
    of_baseline: float | None = None  # of the first setting's seeds, if it is not of_seed


def simulate(
    sources: Sources, tables: int, rows: int, seeds: int, random_seed: int = 1
) -> Iterator[list[list[Resampled]]]:
    """Yields tables of settings that do not differ: rows of seeds, scored by the mean over sentences."""
    chance = np.random.default_rng(random_seed)
    # How often each sample draws each sentence, as a share.
    weights = chance.multinomial(SENTENCES, np.full(SENTENCES, 1 / SENTENCES), size=SAMPLES).T / SENTENCES
    spread = np.full((rows, 1, 1), sources.of_seed)
    if sources.of_baseline is not None:
        spread[0] = sources.of_baseline
    for _ in range(tables):
        of_seed = MEAN + spread * chance.normal(size=(rows, seeds, 1))
        of_system = chance.normal(0, sources.of_system, (rows, 1, SENTENCES))
        sentences = of_seed + of_system + chance.normal(0, sources.of_model, (rows, seeds, SENTENCES))
        scores, samples = sentences.mean(axis=-1), sentences @ weights
        yield [[Resampled(*one) for one in zip(*row, strict=True)] for row in zip(scores, samples, strict=True)]
