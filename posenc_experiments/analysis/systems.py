"""Where two systems differ: sentences that one translates better, and n-grams that one gets right more often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posenc_experiments.analysis.texts import Texts

LONGEST = 4  # words of an n-gram
NGRAMS = 8  # of each side
SENTENCES = 5  # of each side


def compare_systems(systems: Sequence[Texts]) -> dict[str, Any]:
    """For each two systems (`"0 1"`), sentences and n-grams of either's advantage, the largest first.

    `pairs` names sentences by their numbers, whose texts are in `sentences`: source, reference, and of each system its
    translation and its chrF.
    """
    scores = np.array([one.sentence_chrf for one in systems])
    ngrams, counts = correct_ngrams(systems)
    sides = {
        pair: [differing(scores[list(order)], SENTENCES) for order in (pair, pair[::-1])]
        for pair in combinations(range(len(systems)), 2)
    }
    shown = sorted({number for two in sides.values() for side in two for number in side})
    pairs = {}
    for (one, other), sentences in sides.items():
        more = [
            [[ngrams[number], int(counts[first, number]), int(counts[second, number])] for number in best]
            for first, second in ((one, other), (other, one))
            for best in [more_often(counts[first], counts[second])]
        ]
        pairs[f"{one} {other}"] = {"sentences": sentences, "ngrams": more}
    return {"pairs": pairs, "sentences": {str(number): _sentence(systems, scores, number) for number in shown}}


def _sentence(systems: Sequence[Texts], scores: NDArray[np.float64], number: int) -> dict[str, Any]:
    return {
        "source": systems[0].sources[number],
        "reference": systems[0].shown(systems[0].references[number]),
        "systems": [
            [one.shown(one.hypotheses[number]), round(float(score), 1)]
            for one, score in zip(systems, scores[:, number], strict=True)
        ],
    }


def differing(scores: NDArray[np.float64], most: int) -> list[int]:
    """The sentences on which the first of two systems is better than the second, the largest advantage first."""
    advantage = scores[0] - scores[1]
    order = np.argsort(-advantage, kind="stable")[:most]
    return [int(number) for number in order if advantage[number] > 0]


def correct_ngrams(systems: Sequence[Texts]) -> tuple[list[str], NDArray[np.int64]]:
    """All n-grams that a system gets right, and how often each does (systems, n-grams): in a sentence at most as often
    as the reference has them.
    """
    counters = [_correct(one) for one in systems]
    names = sorted(set().union(*counters))
    return [" ".join(name) for name in names], np.array([[counter[name] for name in names] for counter in counters])


def _correct(texts: Texts) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    for hypothesis, reference in zip(*texts.words, strict=True):
        found.update(_ngrams(hypothesis) & _ngrams(reference))
    return found


def _ngrams(words: Sequence[str]) -> Counter[tuple[str, ...]]:
    sizes = range(1, LONGEST + 1)
    return Counter(tuple(words[start : start + size]) for size in sizes for start in range(len(words) - size + 1))


def more_often(counts: NDArray[np.int64], others: NDArray[np.int64]) -> list[int]:
    """The n-grams that one system gets right more often than the other, by their share of both counts, each plus one
    (compare-mt's order).
    """
    share = (counts + 1) / (counts + others + 2)
    # Of equal shares that with the larger difference: one right in 9 of 9 before one in 1 of 1.
    order = np.lexsort((others - counts, -share))[:NGRAMS]
    return [int(number) for number in order if counts[number] > others[number]]
