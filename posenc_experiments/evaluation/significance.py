"""Tests whether two settings differ in BLEU by more than their test sentences and seeds explain."""

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import bleu
from sacrebleu.significance import _compute_p_value

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.evaluation.metrics import BOOTSTRAP_SEED
from posenc_experiments.evaluation.results import Score, read_lines
from posenc_experiments.experiment.layout import HYPOTHESES, REFERENCES

SAMPLES = 1000  # of the bootstrap of one seed, as in SacreBLEU
#: of that of several seeds: no p-value is below 1 / (samples + 1), and Holm multiplies it by the number of tests
SAMPLES_OF_SEEDS = 10_000
AT_ONCE = 100  # samples whose statistics are summed at once, to bound the memory
Numbers = NDArray[np.float64]


def have_common_seeds(baseline: Sequence[Score], system: Sequence[Score]) -> bool:
    """Whether two settings were trained with the same seeds, so that they can be tested."""
    return {score.seed for score in baseline} == {score.seed for score in system}


def paired_bootstrap(baseline: Sequence[Score], system: Sequence[Score]) -> float:
    """The p-value of the difference in mean BLEU: a paired bootstrap over sentences and seeds.

    One seed has the p-value that SacreBLEU's `--paired-bs` prints, which is one-sided. Several seeds have a two-sided
    one: each of 10,000 samples draws sentences, the same for all translations, and n - 1 of n seeds with replacement,
    so that the variance of the mean over seeds has no bias (Rao and Wu 1988). The random numbers depend on the
    environment variable SACREBLEU_SEED, by default 12345. If no sample has a difference, p is 1; there SacreBLEU's is
    the least that it can be.

    Args:
        baseline, system: scores on one test set or on all together, one for each seed.

    Raises:
        RecipeError: the two do not have the same seeds.
    """
    if not have_common_seeds(baseline, system):
        raise RecipeError(
            f"{_seeds(baseline)} and {_seeds(system)}: only equal seeds can be tested; train the missing ones, or "
            "choose common ones with --seeds."
        )
    by_seed = (sorted(row, key=lambda score: score.seed) for row in (baseline, system))
    samples = SAMPLES if len(baseline) == 1 else SAMPLES_OF_SEEDS
    pairs = [(_resampled(one, samples), _resampled(other, samples)) for one, other in zip(*by_seed, strict=True)]
    real = float(np.mean([one.score - other.score for one, other in pairs]))
    differences = np.array([one.samples - other.samples for one, other in pairs])
    if not differences.any():
        return 1.0
    if len(pairs) == 1:
        distances = np.abs(differences[0])
        return float(_compute_p_value(distances - distances.mean(), abs(real)))
    return float(_compute_p_value(np.abs(_mean_of_sampled_seeds(differences) - real), abs(real)))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of several tests with Holm's (1979) correction, in the order given."""
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, number in enumerate(np.argsort(p_values, kind="stable")):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[number]))
        adjusted[number] = least
    return adjusted


def _seeds(scores: Sequence[Score]) -> str:
    """Which seeds a setting has, for a message."""
    seeds = sorted(score.seed for score in scores)
    return f"{scores[0].name} has seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def _mean_of_sampled_seeds(differences: Numbers) -> Numbers:
    """The mean difference in each sample, over the seeds that it draws; `differences` has (seeds, samples)."""
    seeds, samples = differences.shape
    drawn = np.random.default_rng(_random_seed()).integers(seeds, size=(seeds - 1, samples))
    return np.asarray(np.take_along_axis(differences, drawn, axis=0).mean(axis=0))


class Translations(NamedTuple):
    """Files of hypotheses and references, each with the time of its last change."""

    hypotheses: tuple[tuple[Path, int], ...]
    references: tuple[tuple[Path, int], ...]


def translation_files(score: Score) -> Translations:
    """The files of a score's translations; several if it is of several test sets.

    Raises:
        RecipeError: one is missing.
    """
    kinds = [[one.file(kind) for one in score.parts or (score,)] for kind in (HYPOTHESES, REFERENCES)]
    try:
        return Translations(*(tuple((path, path.stat().st_mtime_ns) for path in paths) for paths in kinds))
    except FileNotFoundError as error:
        instead = "prepare the corpus and name its --data-dir, or " if Path(error.filename) in kinds[1] else ""
        raise RecipeError(
            f"{error.filename} is missing, and --baseline and --all-tests need it: {instead}run the stages translate "
            "and score again."
        ) from None


def read_translations(files: Translations) -> tuple[list[str], list[str]]:
    """All lines of the hypotheses and of the references."""
    hypotheses, references = ([line for path, _ in paths for line in read_lines(path)] for paths in files)
    return hypotheses, references


class _Resampled(NamedTuple):
    score: float
    samples: Numbers


def _resampled(score: Score, samples: int) -> _Resampled:
    """BLEU of a system, and of samples of its sentences; the same sentences for every system."""
    return _resampled_files(translation_files(score), score.bleu.lowercased, samples, _random_seed())


def _random_seed() -> int:
    seed = os.environ.get("SACREBLEU_SEED", "")
    return int(seed) if seed.isdecimal() else BOOTSTRAP_SEED


@lru_cache(maxsize=512)
def _resampled_files(files: Translations, lowercase: bool, samples: int, seed: int) -> _Resampled:
    # SacreBLEU's PairedTest would resample both systems of every pair.
    metric = bleu.BLEU(lowercase=lowercase)
    hypotheses, references = read_translations(files)
    statistics = metric._extract_corpus_statistics(hypotheses, [references])
    whole = metric._aggregate_and_compute(statistics).score
    of_sentences = np.array(statistics, dtype="float32")
    random, sentences = np.random.default_rng(seed), len(statistics)
    scores = []
    for start in range(0, samples, AT_ONCE):
        chosen = random.choice(sentences, size=(min(AT_ONCE, samples - start), sentences), replace=True)
        scores += [metric._compute_score_from_stats(sample).score for sample in of_sentences[chosen].sum(axis=1)]
    return _Resampled(whole, np.array(scores))
