"""Tests whether two settings differ in a metric by more than their seeds and the test set explain.

docs/scoring.md has the formulas, the reasons and the measured error rates; names here are those of that page. The test
is Welch's over seeds, with the variance of the test set added: a jackknife over documents, or over sentences where no
documents are known. It draws no random numbers.
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
from sacrebleu.significance import estimate_ci
from scipy import stats

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.languages import length
from posenc_experiments.data.context import DOCUMENTS
from posenc_experiments.data.documents import read_documents
from posenc_experiments.evaluation.metrics import ALL_TESTS, BOOTSTRAP_SEED, BY_LENGTH, CONFIDENCE, sacrebleu_metric
from posenc_experiments.evaluation.results import Result, read_lines, read_sentence_scores, read_test_texts
from posenc_experiments.experiment.layout import HYPOTHESES, REFERENCES

SAMPLES = 1000  # of the sentences, for intervals of one system, as in SacreBLEU
ALPHA = 0.05  # of all comparisons of a question together
ABOVE, BELOW, EQUIVALENT, UNDECIDED = "above", "below", "equivalent", "undecided"
Numbers = NDArray[np.float64]
Units = NDArray[np.intp]
Compute = Callable[[Numbers], float]  # a score from sums over sentences


class Jackknifed(NamedTuple):
    """The score of one seed, and how much it moves when a unit of the test set is left out, for each unit.

    The moves are scaled, so that the sum of their squares is the variance over test sets.
    """

    score: float
    moves: Numbers
    sentences: int = 0

    @property
    def documents(self) -> int | None:
        """The number of documents, which are the units; None if these are sentences."""
        return len(self.moves) if len(self.moves) < self.sentences else None


class Resampled(NamedTuple):
    """The score of one seed, and its scores on SacreBLEU's samples of the sentences, the same for every system."""

    score: float
    samples: Numbers

    @property
    def interval(self) -> float:
        """Half the width of SacreBLEU's 95 % bootstrap interval, which does not cover other seeds."""
        return float(estimate_ci(self.samples)[1])


class Verdict(NamedTuple):
    """What a comparison says: a word, and the interval that decides it.

    `undecided (alone: above)` would be decided if the comparison were the only one of its question.
    """

    word: str
    low: float
    high: float


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

    def margin_p_value(self, margin: float) -> float:
        """The p-value of two one-sided tests that the difference is as large as a margin."""
        room = margin - abs(self.value)
        if self.variance == 0:
            return float(room <= 0)
        return float(stats.t.sf(room / math.sqrt(self.variance), self.degrees))

    def verdict(self, comparisons: int, margin: float | None) -> Verdict:
        """The verdict on this comparison, one of the comparisons of a question.

        A difference that is shown to exist and to be smaller than the margin counts as a difference.
        """
        alpha = ALPHA / comparisons
        low, high = self.interval(1 - alpha)
        if low > 0 or high < 0:
            return Verdict(ABOVE if low > 0 else BELOW, low, high)
        if margin is not None:
            inner = self.interval(1 - 2 * alpha)
            if max(map(abs, inner)) < margin:
                return Verdict(EQUIVALENT, *inner)
        alone = self.verdict(1, margin).word if comparisons > 1 else UNDECIDED
        return Verdict(UNDECIDED if alone == UNDECIDED else f"{UNDECIDED} (alone: {alone})", low, high)


@dataclass(frozen=True)
class PooledVariance:
    """One variance over seeds for several rows."""

    variance: float
    degrees: int
    rows: int
    equal_spread: float  # the p-value of Bartlett's test that seeds vary equally in all rows

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]]) -> PooledVariance:
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
    baseline: Sequence[Jackknifed], systems: Sequence[Sequence[Jackknifed]], pool_variance: bool = False
) -> tuple[list[Difference], PooledVariance | None]:
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
    pooled = PooledVariance.of(list(itertools.compress(rows, near))) if pool_variance and sum(near) > 1 else None
    usable = pooled if pooled is not None and pooled.allowed else None
    differences = [
        difference(baseline, row, usable if is_near else None) for row, is_near in zip(systems, near[1:], strict=True)
    ]
    return differences, pooled


def difference(
    baseline: Sequence[Jackknifed], system: Sequence[Jackknifed], pooled: PooledVariance | None = None
) -> Difference:
    """How much higher a system scores than a baseline, perhaps with one variance over seeds for all rows."""
    sides = [([one.score for one in row], np.array([one.moves for one in row])) for row in (baseline, system)]
    if pooled is None:
        terms = [(float(np.var(scores, ddof=1)) / len(scores), len(scores) - 1) for scores, _ in sides]
    else:
        terms = [(pooled.variance * sum(1 / len(scores) for scores, _ in sides), pooled.degrees)]
    (base, base_moves), (other, other_moves) = sides
    units = base_moves.shape[1]
    v_jack = float(np.square(other_moves.mean(axis=0) - base_moves.mean(axis=0)).sum())
    own = [(_own_errors(moves), (len(moves) - 1) * (units - 1)) for moves in (base_moves, other_moves)]
    variance = sum(value for value, _ in terms) + max(0.0, v_jack - sum(value for value, _ in own))
    uncertainty = sum(value**2 / degrees for value, degrees in (*terms, (v_jack, units - 1), *own))
    # Where V_test was negative, Satterthwaite's formula gives fewer than any of the variances has.
    least = min(units - 1, *(degrees for _, degrees in terms))
    degrees = max(variance**2 / uncertainty, least) if uncertainty else math.inf
    return Difference(float(np.mean(other) - np.mean(base)), variance, degrees)


def _own_errors(moves: Numbers) -> float:
    """e^2 / n: the variance of the mean of seeds that comes from errors which each model makes alone.

    Half the mean variance of differences of pairs is the variance around the mean over seeds, with n - 1.
    """
    seeds = len(moves)
    return float(np.square(moves - moves.mean(axis=0)).sum()) / (seeds - 1) / seeds


def sacrebleu_p(baseline: Resampled, system: Resampled) -> float:
    """The p-value that `sacrebleu --paired-bs` prints for two translations; 1 if they are equal.

    It tells whether these two models would rank so on other sentences, and nothing about other seeds.
    """
    distances = np.abs(system.samples - baseline.samples)
    if not distances.any():
        return 1.0  # SacreBLEU's is the least that it can be
    farther = distances - distances.mean() > abs(system.score - baseline.score)
    return float((farther.sum() + 1) / (len(farther) + 1))


def jackknife(results: pd.DataFrame, directory: Path, test: str, metric: str) -> Jackknifed:
    """A metric of an experiment on a test set, and what leaving out each of its units does.

    Args:
        results: what `read_results` found.
        test: a test set, a part of one as `parts_of_tests` names it, or ALL_TESTS or BY_LENGTH for all of them.

    Raises:
        RecipeError: a file is missing, or no source is longer than the median.
    """
    return jackknife_statistics(*_scored(results, directory, test, metric))


def resample(results: pd.DataFrame, directory: Path, test: str, metric: str) -> Resampled:
    """A metric of an experiment on a test set, and on SacreBLEU's samples of its sentences."""
    numbers, compute, _ = _scored(results, directory, test, metric)
    return resample_statistics(numbers, compute)


def _scored(results: pd.DataFrame, directory: Path, test: str, metric: str) -> tuple[Numbers, Compute, Units]:
    """The numbers of each sentence, what makes a score of their sums, and the number of each sentence's unit."""
    whole, _, part = test.partition(", ")
    parts = results_on(results, directory, whole, metric)
    numbers, compute = _statistics(parts, metric)
    units = units_of(results, parts)
    if part:
        inside = in_range(source_lengths(parts), part.split()[0])
        return numbers[inside], compute, units[inside]
    if test != BY_LENGTH:
        return numbers, compute, units
    lengths = source_lengths(parts)
    longer = lengths > np.median(lengths)
    if not longer.any():
        raise RecipeError(f"--by-length: no source of {parts[0].pair} is longer than the median: leave the option out.")
    if min(len(set(units[half])) for half in (longer, ~longer)) == 1:  # without it, there would be no half
        units = np.arange(len(units))
    size = numbers.shape[1]
    halves = np.hstack([numbers * longer[:, None], numbers * ~longer[:, None]])
    return halves, lambda sums: compute(sums[:size]) - compute(sums[size:]), units


def units_of(results: pd.DataFrame, parts: Sequence[Result]) -> Units:
    """The number of each sentence's unit: its document, or itself if the documents of a test set are unknown."""
    sizes = [len(_lines_of(part)) for part in parts]
    paths = [path for part in parts if (path := _documents_of(results, part)) is not None]
    if len(paths) < len(parts):
        return np.arange(sum(sizes))
    names: list[tuple[str, bytes]] = []
    for part, sentences, path in zip(parts, sizes, paths, strict=True):
        names += [(part.test, document) for document in read_documents(path, part.test, sentences)]
    return pd.factorize(pd.Series(names))[0]


def _lines_of(part: Result) -> Sequence[Any]:
    """What a result has of each of its sentences: the scores of another tool, or the references."""
    return read_lines(part.files[REFERENCES]) if part.sentences is None else read_sentence_scores(part.sentences)[1]


def _documents_of(results: pd.DataFrame, part: Result) -> Path | None:
    """The file that names the document of each line of a test set, that of any experiment; None if there is none."""
    alike = (results[["corpus", "pair", "test"]] == [part.corpus, part.pair, part.test]).all(axis=1)
    return next((files[DOCUMENTS] for files in results["files"][alike] if files[DOCUMENTS].is_file()), None)


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
    """The numbers of each sentence of some results, as if their test sets were one, and what makes a score of sums."""
    if parts[0].sentences is not None:
        values = [value for part in parts for value in read_sentence_scores(part.sentences)[1]]
        return np.array([values, np.ones(len(values))]).T, lambda sums: float(sums[0] / sums[1])
    texts = [[tuple(read_lines(part.files[kind])) for kind in (HYPOTHESES, REFERENCES)] for part in parts]
    scorer = sacrebleu_metric(metric, parts[0].signature)
    return np.concatenate([_extract_once(scorer, *lines) for lines in texts]), compute_with(scorer)


def extract(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Numbers:
    """The numbers of each sentence from whose sums SacreBLEU computes a metric, of shape (sentences, numbers).

    Only private functions of SacreBLEU give them; its public PairedTest would resample both systems of every pair.
    """
    return np.array(metric._extract_corpus_statistics(hypotheses, [references]), dtype="float32")


_extract_once = lru_cache(maxsize=512)(extract)


def compute_with(metric: Any) -> Compute:
    """What makes SacreBLEU's score of the sums of what `extract` gives."""
    return lambda sums: float(metric._compute_score_from_stats(sums.tolist()).score)


def jackknife_statistics(statistics: Numbers, compute: Compute, units: Units) -> Jackknifed:
    """A score computed from sums over sentences, and from those without each unit.

    Args:
        statistics: of shape (sentences, statistics).
        compute: makes a score of the sums.
        units: the number of the unit of each sentence.
    """
    names, numbers = np.unique(units, return_inverse=True)
    if len(names) == 1:  # nothing can be learnt of other documents
        names, numbers = np.arange(len(units)), np.arange(len(units))
    sums = np.zeros((len(names), statistics.shape[1]))
    np.add.at(sums, numbers, statistics)
    total = statistics.sum(axis=0, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        without = np.array([compute(total - one) for one in sums])
    if len(sums) < 2 or not np.isfinite(without).all():
        raise RecipeError(
            "A test set, or a part of one by --words or --by-length, has one sentence or one document, too few for an "
            "interval: leave it out."
        )
    moves = (without - without.mean()) * math.sqrt((len(sums) - 1) / len(sums))
    return Jackknifed(compute(total), moves, len(units))


def resample_statistics(statistics: Numbers, compute: Compute) -> Resampled:
    """A score computed from sums over sentences, and from those over SacreBLEU's samples of them."""
    scores = [compute(sums) for sums in _counts(len(statistics)) @ statistics]
    return Resampled(compute(statistics.sum(axis=0)), np.array(scores))


@lru_cache(maxsize=16)
def _counts(sentences: int) -> NDArray[np.float32]:
    """How often each sentence is in each of SacreBLEU's samples, of shape (samples, sentences)."""
    random, counts = np.random.default_rng(BOOTSTRAP_SEED), np.empty((SAMPLES, sentences), dtype="float32")
    for row in counts:
        row[:] = np.bincount(random.choice(sentences, size=sentences), minlength=sentences)
    return counts
