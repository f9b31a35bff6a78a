"""Statistics of attention, sentence by sentence: where heads look, how sharply, and what positions add to the logits.

All functions take one sentence without padding: weights and logits (H, T, S), T queries and S keys, and ``visible``
(T, S), the keys that the mask leaves to each query. A distance is j - i, the position of the key minus that of the
query; between source and target, the source position minus the target position, both from 0. The end-of-sentence token
is a token like others.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairseq_posenc.attention.observing import attended_distance
from fairseq_posenc.positions import relative_distances

#: positions' part of the logits is averaged for distances up to this one
FURTHEST = 32


def distances_of(matrices: Tensor) -> Tensor:
    """The distance of every query and key in matrices of attention, (..., T, S): (T, S), int64."""
    return relative_distances(matrices.shape[-2], matrices.shape[-1], first=0)


def mean_distance(weights: Tensor) -> Tensor:
    """The attended distance of each query, weighted by attention, (H, T)."""
    return attended_distance(weights, distances_of(weights))


def mean_absolute_distance(weights: Tensor) -> Tensor:
    """The attended distance of each query without its sign, (H, T)."""
    return attended_distance(weights, distances_of(weights).abs())


def share_at(weights: Tensor, distance: int) -> Tensor:
    """The share of each query's attention that the key at this distance gets, (H, T); 0 where there is no such key."""
    return (weights * (distances_of(weights) == distance)).sum(-1)


def entropy(weights: Tensor) -> Tensor:
    """Entropy of each query's attention in nats, (H, T)."""
    return torch.special.entr(weights).sum(-1)


def relative_entropy(weights: Tensor, visible: Tensor) -> Tensor:
    """Entropy relative to that of uniform attention to the visible keys, log n, (H, queries with two keys or more)."""
    choices = visible.sum(-1)
    free = choices > 1
    return entropy(weights)[:, free] / choices[free].log()


def logit_rank(logits: Tensor) -> Tensor:
    """Rank of the logits before masks (DIET, figure 2) relative to the highest that is possible, min(T, S); (H, 1).

    Singular values count from ``torch.linalg.matrix_rank``'s own tolerance on, that of the logits' precision.
    """
    return torch.linalg.matrix_rank(logits)[:, None].double() / min(logits.shape[1:])


def locality(weights: Tensor) -> Tensor:
    """Chen et al. (2023): how much of each query's attention stays near it, sum_j w_ij / 2^|j - i|; (H, T)."""
    return (weights * 0.5 ** distances_of(weights).abs()).sum(-1)


def symmetry(weights: Tensor) -> Tensor | None:
    """Chen et al. (2023): how alike attention is to the left and to the right, as their code computes it; (H, 1).

    For each query the differences |w_(i, i-o) - w_(i, i+o)| of as many offsets o as have keys on both sides are scaled
    so that the least is 0 and the largest 1 (all to 0 where they are equal). One minus their mean over queries and
    offsets is the symmetry of a sentence. None where no query has keys on both sides.
    """
    length = weights.size(1)
    offsets = torch.arange(1, (length - 1) // 2 + 1)
    if len(offsets) == 0:
        return None
    i = torch.arange(length)[:, None]
    inside = (i >= offsets) & (i + offsets < length)
    left, right = (weights[:, i, (i + side * offsets).clamp(0, length - 1)] for side in (-1, 1))
    differences = (left - right).abs()  # (H, T, offsets)
    least = differences.masked_fill(~inside, torch.inf).amin(-1, keepdim=True)
    spread = differences.masked_fill(~inside, -torch.inf).amax(-1, keepdim=True) - least
    equal = spread < 10 * torch.finfo(weights.dtype).eps
    scaled = torch.where(equal | ~inside, 0, (differences - least) / spread)
    return 1 - scaled.sum((1, 2))[:, None] / inside.sum()


class Means:
    """Running means of several numbers, each for every head, in double precision."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, name: str, values: Tensor | None) -> None:
        """Adds values (H, n); None is nothing to add."""
        if values is not None and values.size(1):
            self._sums[name] = self._sums.get(name, 0) + values.double().sum(1)
            self._counts[name] = self._counts.get(name, 0) + values.size(1)

    def of(self, name: str) -> list[float | None]:
        """The mean of each head; empty where nothing was added."""
        return (self._sums[name] / self._counts[name]).tolist() if name in self._sums else []


#: distances at which the share of attention is reported
SHARES = {"-1": -1, "0": 0, "+1": 1}
STATISTICS = (
    *("mean_distance", "mean_absolute_distance", "entropy", "relative_entropy", "logit_rank"),
    *("locality", "symmetry"),
)


class LayerStatistics:
    """What one layer's heads do, over all sentences that were added; memory does not grow with them.

    Args:
        heads: number of heads.
        keys_are_words: whether there is a key for each word, and not mixtures of them, which have no distances.
        is_bidirectional: whether queries see both sides; else symmetry has no meaning.
    """

    def __init__(self, heads: int, keys_are_words: bool = True, is_bidirectional: bool = True) -> None:
        self.heads = heads
        self.keys_are_words = keys_are_words
        self.is_bidirectional = is_bidirectional
        self._means = Means()
        self._added = torch.zeros(heads, 2 * FURTHEST + 1, dtype=torch.float64)
        self._pairs = torch.zeros(2 * FURTHEST + 1, dtype=torch.float64)
        self._adds = False

    def add(self, weights: Tensor, logits: Tensor, plain: Tensor, visible: Tensor) -> None:
        """Adds one sentence without padding; ``plain`` are the logits without positions."""
        weights = weights.double()
        self._means.add("entropy", entropy(weights))
        self._means.add("relative_entropy", relative_entropy(weights, visible))
        self._means.add("logit_rank", logit_rank(logits))
        if not self.keys_are_words:
            return
        self._means.add("mean_distance", mean_distance(weights))
        self._means.add("mean_absolute_distance", mean_absolute_distance(weights))
        self._means.add("locality", locality(weights))
        for name, distance in SHARES.items():
            self._means.add(name, share_at(weights, distance))
        if self.is_bidirectional:
            self._means.add("symmetry", symmetry(weights))
        self._add_effect((logits - plain).double(), visible)

    def _add_effect(self, effect: Tensor, visible: Tensor) -> None:
        self._adds = self._adds or bool(effect[:, visible].any())
        distances = distances_of(visible)
        near = visible & (distances.abs() <= FURTHEST)
        index = distances[near] + FURTHEST
        self._added.index_add_(1, index, effect[:, near])
        self._pairs += index.bincount(minlength=len(self._pairs))

    def attention(self) -> dict[str, Any]:
        """The statistics of each head; None where one has no meaning or no sentence was long enough."""
        values = {name: self._means.of(name) or [None] * self.heads for name in (*STATISTICS, *SHARES)}
        return {
            "heads": [
                {name: values[name][head] for name in STATISTICS}
                | {"share": {at: values[at][head] for at in SHARES} if self.keys_are_words else None}
                for head in range(self.heads)
            ]
        }

    def position_logits(self) -> dict[str, Any] | None:
        """The mean of what positions add to the logits by distance, for each head; None where they add nothing."""
        if not self._adds:
            return None
        occurs = self._pairs > 0
        means = self._added[:, occurs] / self._pairs[occurs]
        return {"distances": (occurs.nonzero()[:, 0] - FURTHEST).tolist(), "heads": means.tolist()}
