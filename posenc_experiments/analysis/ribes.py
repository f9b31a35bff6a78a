"""RIBES: how well a translation keeps the reference's word order (Isozaki et al. 2010).

Kendall's tau, normalized to [0, 1], over the words that can be aligned, times precision ** 0.25 and brevity
penalty ** 0.1. NLTK has it too, but would be one more large package, and fails on empty translations.
"""

import math
from collections.abc import Sequence
from itertools import combinations

Words = Sequence[str]


def ribes(hypothesis: Words, reference: Words) -> float:
    """The score of one sentence, from 0 to 1; a corpus has the mean of its sentences."""
    if not hypothesis or not reference:
        return float(not hypothesis and not reference)
    aligned = align(hypothesis, reference)
    if len(aligned) > 1:
        pairs = list(combinations(aligned, 2))
        tau = sum(one < other for one, other in pairs) / len(pairs)
    else:
        tau = float(len(aligned) == len(reference) == 1)
    precision = len(aligned) / len(hypothesis)
    brevity = min(1.0, math.exp(1 - len(reference) / len(hypothesis)))
    return float(tau * precision**0.25 * brevity**0.1)


def align(hypothesis: Words, reference: Words) -> list[int]:
    """The place in the reference of each word that, alone or with its neighbours, occurs once in both sentences."""
    places = []
    for place, word in enumerate(hypothesis):
        for left, right in _contexts(place, len(hypothesis)) if word in reference else ():
            context = hypothesis[place - left : place + right + 1]
            starts = _starts(context, reference)
            if len(starts) == 1 == len(_starts(context, hypothesis)):
                places.append(starts[0] + left)
                break
    return places


def _contexts(place: int, length: int) -> list[tuple[int, int]]:
    """Numbers of neighbours to the left and to the right: none, then more and more, those to the right first."""
    either = [[(0, size), (size, 0)] for size in range(1, length)]
    return [(0, 0), *((left, right) for two in either for left, right in two if left <= place < length - right)]


def _starts(context: Words, words: Words) -> list[int]:
    size = len(context)
    return [start for start in range(len(words) - size + 1) if words[start : start + size] == context]
