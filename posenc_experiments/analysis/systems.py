"""Where two systems differ: sentences that one translates better, and n-grams that one gets right more often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
from sacrebleu.metrics.helpers import extract_all_word_ngrams

from posenc_experiments.analysis.texts import Texts

LONGEST = 4  # words of an n-gram
NGRAMS = 8  # of each side
SENTENCES = 5  # of each side


def compare_systems(systems: Sequence[Texts]) -> dict[str, Any]:
    """Of each two systems, in both orders (`"0 1"`, `"1 0"`), what the first does better, the largest advantage first.

    `pairs` has n-grams with the counts of both, and sentences by their numbers, whose texts are in `sentences`: source,
    reference, and of each system its translation and its chrF.
    """
    scores = np.array([one.sentence_chrf for one in systems])
    counters = [_correct(one) for one in systems]
    names = sorted(set().union(*counters))
    counts = np.array([[counter[name] for name in names] for counter in counters])
    pairs = {}
    for one, other in permutations(range(len(systems)), 2):
        # In compare-mt's order: by the share of both counts, each plus one. Of equal shares that with the larger
        # difference: one right in 9 of 9 before one in 1 of 1.
        more = counts[one] - counts[other]
        order = np.lexsort((-more, -(counts[one] + 1) / (counts[one] + counts[other] + 2)))[:NGRAMS]
        ngrams = [[" ".join(names[at]), *counts[[one, other], at].tolist()] for at in order if more[at] > 0]
        advantage = scores[one] - scores[other]
        best = np.argsort(-advantage, kind="stable")[:SENTENCES]
        pairs[f"{one} {other}"] = {"sentences": best[advantage[best] > 0].tolist(), "ngrams": ngrams}
    sentences = {
        str(number): {
            "source": systems[0].sources[number],
            "reference": systems[0].shown(systems[0].references[number]),
            "systems": [
                [one.shown(one.hypotheses[number]), round(float(score), 1)]
                for one, score in zip(systems, scores[:, number], strict=True)
            ],
        }
        for number in sorted({number for pair in pairs.values() for number in pair["sentences"]})
    }
    return {"pairs": pairs, "sentences": sentences}


def _correct(texts: Texts) -> Counter[tuple[str, ...]]:
    """How often a system gets each n-gram right: in a sentence at most as often as the reference has it."""
    correct: Counter[tuple[str, ...]] = Counter()
    for hypothesis, reference in zip(*texts.words, strict=True):
        one, other = (extract_all_word_ngrams(" ".join(words), 1, LONGEST)[0] for words in (hypothesis, reference))
        correct.update(one & other)
    return correct
