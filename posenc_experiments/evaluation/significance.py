"""Tests whether two settings differ in a metric by more than their seeds and test sentences explain.

Three things vary: another seed gives another model (1), another test set favours other settings (2), and each model
errs on sentences of its own (3). Let x_Ai be the score of seed i = 1..n_A of setting A, and D = mean(x_A) - mean(x_B):

    V_seeds = s_A^2 / n_A + s_B^2 / n_B                  the variance over seeds, of 1 and 3
    V_boot  = Var(D) over samples of the sentences       of 2 and 3
    e_A^2   = half the mean of Var(x_Ai - x_Aj) over those samples and pairs of seeds, of 3
    V_sent  = max(0, V_boot - e_A^2 / n_A - e_B^2 / n_B)   of 2 alone, so that 3 counts once
    V       = V_seeds + V_sent
    df      = V^2 / ((s_A^2 / n_A)^2 / (n_A - 1) + (s_B^2 / n_B)^2 / (n_B - 1))     (Satterthwaite 1946)

D / sqrt(V) follows Student's t distribution with df degrees of freedom. docs/scoring.md has the measured error rates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sacrebleu.significance import _compute_p_value, estimate_ci
from scipy import stats

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.languages import length
from posenc_experiments.evaluation.metrics import ALL_TESTS, BOOTSTRAP_SEED, BY_LENGTH, CONFIDENCE, sacrebleu_metric
from posenc_experiments.evaluation.results import Result, read_lines, read_sentence_scores, read_test_texts
from posenc_experiments.experiment.layout import HYPOTHESES, REFERENCES

SAMPLES = 1000  # of the sentences, as in SacreBLEU
ALPHA = 0.05  # of all tests
Numbers = NDArray[np.float64]
Compute = Callable[[Any, int], Any]  # a score from sums over sentences and their number


class Resampled(NamedTuple):
    """The score of one seed, and its scores on samples of the sentences, the same samples for every system."""

    score: float
    samples: Numbers

    @property
    def interval(self) -> float:
        """Half the width of SacreBLEU's 95 % bootstrap interval, which does not cover other seeds."""
        return float(estimate_ci(self.samples)[1])


@dataclass(frozen=True)
class Difference:
    """The difference of two settings' means: its value, variance and degrees of freedom."""

    value: float
    variance: float
    degrees: float

    @property
    def p_value(self) -> float:
        """The two-sided p-value of no difference."""
        if self.variance == 0:
            return float(self.value == 0)
        return float(2 * stats.t.sf(abs(self.value) / math.sqrt(self.variance), self.degrees))

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """The confidence interval of the difference."""
        half = float(stats.t.ppf((1 + confidence) / 2, self.degrees)) * math.sqrt(self.variance)
        return self.value - half, self.value + half

    def is_within(self, margin: float) -> bool:
        """Whether two one-sided tests show that the difference is smaller than a margin (Schuirmann 1987)."""
        low, high = self.interval(1 - 2 * ALPHA)
        return -margin < low and high < margin


@dataclass(frozen=True)
class Pooling:
    """One variance over seeds for several rows."""

    variance: float
    degrees: int
    rows: int
    equal_spread: float  # the p-value of Bartlett's test that seeds vary equally in all rows

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]]) -> Pooling:
        """Pools the variances over seeds of several rows of several seeds."""
        degrees = sum(len(row) - 1 for row in rows)
        squares = sum(float(np.var(row)) * len(row) for row in rows)
        with np.errstate(divide="ignore", invalid="ignore"):  # all seeds of a row may score the same
            p_value = float(stats.bartlett(*rows).pvalue)
        return cls(squares / degrees, degrees, len(rows), 1.0 if math.isnan(p_value) else p_value)

    @property
    def allowed(self) -> bool:
        return self.equal_spread > ALPHA


def all_differences(
    baseline: Sequence[Resampled], systems: Sequence[Sequence[Resampled]], pool_variance: bool = False
) -> tuple[list[Difference], Pooling | None]:
    """How much higher each system scores than a baseline.

    Args:
        baseline, systems: one for each of two or more seeds, on the same sentences.
        pool_variance: whether to take the variance over seeds as equal in all rows, unless Bartlett's test finds that
            it differs. (With three seeds Levene's finds this in a quarter of tables with equal variances, with two
            always.) Rows that score less than half of the baseline or more than twice as much are neither pooled nor
            tested so, because such models vary in another way.

    Returns:
        a difference for each system, and the pooled variance if it was asked for and there are several rows.
    """
    rows = [[one.score for one in row] for row in (baseline, *systems)]
    center = np.mean(rows[0])
    near = [center != 0 and 0.5 <= np.mean(row) / center <= 2 for row in rows]
    pooled = Pooling.of(list(itertools.compress(rows, near))) if pool_variance and sum(near) > 1 else None
    usable = pooled if pooled is not None and pooled.allowed else None
    found = [
        difference(baseline, row, usable if is_near else None) for row, is_near in zip(systems, near[1:], strict=True)
    ]
    return found, pooled


def difference(baseline: Sequence[Resampled], system: Sequence[Resampled], pooled: Pooling | None = None) -> Difference:
    """How much higher a system scores than a baseline, by the formulas of this module, or with a pooled variance."""
    sides = [([one.score for one in row], np.array([one.samples for one in row])) for row in (baseline, system)]
    if pooled is None:
        terms = [(float(np.var(scores, ddof=1)) / len(scores), len(scores) - 1) for scores, _ in sides]
    else:
        terms = [(pooled.variance * sum(1 / len(scores) for scores, _ in sides), pooled.degrees)]
    (base, base_samples), (other, other_samples) = sides
    sentences = float(np.var(other_samples.mean(axis=0) - base_samples.mean(axis=0), ddof=1))
    sentences = max(0.0, sentences - _own_errors(base_samples) - _own_errors(other_samples))
    variance = sentences + sum(value for value, _ in terms)
    uncertainty = sum(value**2 / degrees for value, degrees in terms)
    degrees = variance**2 / uncertainty if uncertainty else math.inf
    return Difference(float(np.mean(other) - np.mean(base)), variance, degrees)


def _own_errors(samples: Numbers) -> float:
    """e^2 / n: the variance over samples of the mean of seeds that comes from errors which each model makes alone.

    Half the mean variance of differences of pairs is the variance around the mean over seeds, with n - 1.
    """
    seeds = len(samples)
    return float(np.var(samples - samples.mean(axis=0), axis=1, ddof=1).sum()) / (seeds - 1) / seeds


def sacrebleu_p(baseline: Resampled, system: Resampled) -> float:
    """The p-value that `sacrebleu --paired-bs` prints for two translations; 1 if they are equal.

    It tells whether these two models would rank so on other sentences, and nothing about other seeds.
    """
    distances = np.abs(system.samples - baseline.samples)
    if not distances.any():
        return 1.0  # SacreBLEU's is the least that it can be
    return float(_compute_p_value(distances - distances.mean(), abs(system.score - baseline.score)))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of several tests with Holm's (1979) correction, in the order given."""
    order, adjusted = np.argsort(p_values, kind="stable"), np.zeros(len(p_values))
    by_rank = np.array(p_values)[order] * np.arange(len(p_values), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(by_rank))
    return adjusted.tolist()


def resample(results: pd.DataFrame, directory: Path, test: str, metric: str) -> Resampled:
    """A metric of an experiment on a test set, and of SacreBLEU's samples of its sentences.

    Args:
        results: what `read_results` found.
        test: a test set, a part of one as `parts_of_tests` names it, or ALL_TESTS or BY_LENGTH for all of them.

    Raises:
        RecipeError: a file is missing, or no source is longer than the median.
    """
    whole, _, part = test.partition(", ")
    parts = results_on(results, directory, whole, metric)
    numbers, compute = _statistics(parts, metric)
    if not part and test != BY_LENGTH:
        return resample_statistics(numbers, compute)
    lengths = source_lengths(parts)
    if part:
        return resample_statistics(numbers[in_range(lengths, part.split()[0])], compute)
    longer = lengths > np.median(lengths)
    if not longer.any():
        raise RecipeError(f"--by-length: no source of {parts[0].pair} is longer than the median: leave the option out.")
    one, other = (resample_statistics(numbers[half], compute) for half in (longer, ~longer))
    return Resampled(one.score - other.score, one.samples - other.samples)


def results_on(results: pd.DataFrame, directory: Path, test: str, metric: str) -> list[Result]:
    """A metric of an experiment on a test set; for ALL_TESTS and BY_LENGTH on each of its test sets."""
    mine = results[(results["directory"] == directory) & (results["metric"] == metric)]
    chosen = ~mine["test"].str.contains(" ") if test in (ALL_TESTS, BY_LENGTH) else mine["test"] == test
    return list(mine[chosen].itertuples())


def source_lengths(parts: Sequence[Result]) -> NDArray[np.int64]:
    """The lengths of the sources of some results; RecipeError if a file is missing."""
    language = parts[0].pair.split("-")[0]
    return np.array([length(line, language) for part in parts for line in read_test_texts(part)[0]])


def in_range(lengths: NDArray[np.int64], words: str) -> NDArray[np.bool_]:
    """Which lengths are in a range such as `1-14`, or `15-` for all from 15 on."""
    first, last = words.split("-")
    return (lengths >= int(first)) & (lengths <= int(last or lengths.max()))


def _statistics(parts: Sequence[Result], metric: str) -> tuple[Numbers, Compute]:
    """What `resample_statistics` takes, for a metric of some results on their test sets as if they were one."""
    if parts[0].sentences is not None:
        values = [value for part in parts for value in read_sentence_scores(part.sentences)[1]]
        return np.array(values)[:, None], lambda sums, sentences: sums[0] / sentences
    texts = [[tuple(read_lines(part.files[kind])) for kind in (HYPOTHESES, REFERENCES)] for part in parts]
    of_sacrebleu = sacrebleu_metric(metric, parts[0].signature)
    return np.concatenate([_extract_once(of_sacrebleu, *lines) for lines in texts]), _compute_of(of_sacrebleu)


def resample_lines(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Resampled:
    """A metric of SacreBLEU on some lines, and on samples of them."""
    return resample_statistics(_extract(metric, hypotheses, references), _compute_of(metric))


def _extract(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Numbers:
    # SacreBLEU's PairedTest would resample both systems of every pair.
    return np.array(metric._extract_corpus_statistics(hypotheses, [references]), dtype="float32")


_extract_once = lru_cache(maxsize=512)(_extract)


def _compute_of(metric: Any) -> Compute:
    return lambda sums, _: metric._compute_score_from_stats(sums).score


def resample_statistics(statistics: Numbers, compute: Compute) -> Resampled:
    """A score computed from sums over sentences, and from those over samples of them.

    Args:
        statistics: of shape (sentences, statistics).
        compute: makes a score of the sums and the number of sentences.
    """
    sentences = len(statistics)
    scores = [float(compute(sums, sentences)) for sums in _counts(sentences) @ statistics]
    return Resampled(float(compute(statistics.sum(axis=0), sentences)), np.array(scores))


@lru_cache(maxsize=16)
def _counts(sentences: int) -> NDArray[np.float32]:
    """How often each sentence is in each of SacreBLEU's samples, of shape (samples, sentences)."""
    random, counts = np.random.default_rng(BOOTSTRAP_SEED), np.empty((SAMPLES, sentences), dtype="float32")
    for row in counts:
        row[:] = np.bincount(random.choice(sentences, size=sentences), minlength=sentences)
    return counts
