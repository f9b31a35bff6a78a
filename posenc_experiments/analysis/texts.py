"""The texts of a test set, and how well a system translates sentences of each length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posenc_experiments.analysis.ribes import ribes
from posenc_experiments.base.languages import is_unspaced, length
from posenc_experiments.evaluation.metrics import BLEU, CHRF, CONFIDENCE, make_metric, sacrebleu_metric
from posenc_experiments.evaluation.results import Result, read_test_texts
from posenc_experiments.evaluation.statistics.significance import (
    Compute,
    Numbers,
    compute_with,
    extract,
    resample_statistics,
)

RIBES, RATIO = "RIBES", "length ratio"
METRICS = (BLEU, CHRF, RIBES, RATIO)
# Shares of the test's sentences that are no longer than the ends of the buckets.
ENDS = (0.2, 0.4, 0.6, 0.8, 0.95, 1.0)


@dataclass(frozen=True)
class Texts:
    """Sources, references and one system's translations of a test set, line by line."""

    sources: list[str]
    references: list[str]
    hypotheses: list[str]
    signature: str = ""  # of BLEU
    pair: str = "-"  # source and target language

    @cached_property
    def source_lengths(self) -> NDArray[np.int64]:
        """Words or, for some languages, characters: the same for systems with other subwords."""
        return np.array([length(line, self.pair.split("-")[0]) for line in self.sources])

    @cached_property
    def words(self) -> tuple[list[list[str]], list[list[str]]]:
        """Words of translations and references, as BLEU cuts them."""
        return self._cut(self.hypotheses), self._cut(self.references)

    def _cut(self, lines: list[str]) -> list[list[str]]:
        bleu = self._bleu
        return [bleu.tokenizer((line.lower() if bleu.lowercase else line).rstrip()).split() for line in lines]

    def shown(self, line: str) -> str:
        """A line of the target language with blanks between words: those of BLEU, if the language has none."""
        return " ".join(self._cut([line])[0]) if is_unspaced(self.pair.split("-")[1]) else line

    @cached_property
    def _bleu(self) -> Any:
        return sacrebleu_metric(BLEU, self.signature)

    @cached_property
    def chrf(self) -> Numbers:
        """The numbers of each sentence from which chrF is computed."""
        return extract(make_metric(CHRF, self._bleu.lowercase), self.hypotheses, self.references).astype(float)

    @cached_property
    def sentence_chrf(self) -> Numbers:
        """chrF of each sentence, in %."""
        return np.array([COMPUTE[CHRF](row) for row in self.chrf])

    @cached_property
    def numbers(self) -> dict[str, Numbers]:
        """By metric, the numbers of each sentence, (sentences, n); COMPUTE makes a score of their sums."""
        bleu = extract(self._bleu, self.hypotheses, self.references).astype(float)
        ordered = np.array([[100 * ribes(one, other), 1] for one, other in zip(*self.words, strict=True)])
        return {BLEU: bleu, CHRF: self.chrf, RIBES: ordered, RATIO: bleu[:, :2]}  # BLEU's begin with the lengths


#: by metric, what makes a score of the sums of sentences' numbers
COMPUTE: dict[str, Compute] = {
    BLEU: compute_with(make_metric(BLEU, lowercase=False)),
    CHRF: compute_with(make_metric(CHRF, lowercase=False)),
    RIBES: lambda sums: float(sums[0] / sums[1]),
    RATIO: lambda sums: float(sums[0] / max(sums[1], 1)),  # words of the translations by words of the references
}


def read_texts(result: Result) -> Texts:
    """Reads the files of a result's test set; RecipeError if they cannot be read."""
    sources, references, hypotheses = read_test_texts(result)
    return Texts(sources, references, hypotheses, result.signature, result.pair)


def buckets(lengths: Sequence[int] | NDArray[np.int64], boundary: int | None = None) -> list[tuple[int, int]]:
    """First and last length of each bucket.

    A bucket has a fifth of the sentences, but the longest twentieth has a bucket of its own. There are fewer buckets if
    many sentences have the same length. `boundary` ends a bucket, so that no bucket has lengths on both sides of it.
    """
    ends = sorted({int(np.quantile(lengths, share, method="inverted_cdf")) for share in ENDS})
    if boundary is not None and np.min(lengths) <= boundary < ends[-1]:
        # A bucket that ends just below it is made longer: between the two there is no sentence.
        below = max(length for length in lengths if length <= boundary)
        ends = sorted({*ends} - {int(below)} | {boundary})
    starts = [int(np.min(lengths)), *(end + 1 for end in ends[:-1])]
    return list(zip(starts, ends, strict=True))


def by_length(texts: Texts, longest: int | None = None) -> list[dict[str, Any]]:
    """The scores of each bucket with 95 % bootstrap intervals, and how many sentences there are.

    Args:
        texts: a test set and its translations.
        longest: the limit of the training's source lengths, at which a bucket ends; None if there is none.
    """
    scores = []
    for first, last in buckets(texts.source_lengths, longest):
        inside = (first <= texts.source_lengths) & (texts.source_lengths <= last)
        sentences = int(inside.sum())
        longer = None if longest is None else sentences * (first > longest)
        bucket: dict[str, Any] = {"from": first, "to": last, "sentences": sentences, "longer": longer}
        for name, numbers in texts.numbers.items():
            score, samples = resample_statistics(numbers[inside], COMPUTE[name])
            ends = np.quantile(samples, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
            bucket[name] = [score, *map(float, ends)]
        scores.append(bucket)
    return scores
