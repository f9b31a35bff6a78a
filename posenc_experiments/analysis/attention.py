"""Statistics of attention, sentence by sentence: where heads look, how sharply, and what positions add to the logits.

All functions take one sentence without padding: weights and logits (H, T, S), T queries and S keys, and ``visible``
(T, S), the keys that the mask leaves to each query. A distance is j - i, the position of the key minus that of the
query; between source and target, the source position minus the target position, both from 0. The end-of-sentence token
is a token like others.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from fairseq_posenc.attention.observing import attended_distance
from fairseq_posenc.positions import relative_distances

#: positions' part of the logits is averaged for distances up to this one
FURTHEST = 32


#: distances at which the share of attention is reported
SHARES = {"-1": -1, "0": 0, "+1": 1}
#: what heads have besides
STATISTICS = (
    *("mean_distance", "mean_absolute_distance", "entropy", "relative_entropy", "logit_rank"),
    *("locality", "symmetry"),
)


def sharpness(weights: Tensor, logits: Tensor, visible: Tensor) -> dict[str, Tensor]:
    """Statistics of each query, or of the sentence, without distances: (H, n) each.

    Relative entropy is that of queries with two visible keys or more. The rank (DIET, figure 2) is relative to the
    highest that is possible; singular values count from ``torch.linalg.matrix_rank``'s own tolerance on.
    """
    entropy = torch.special.entr(weights).sum(-1)
    choices = visible.sum(-1)
    free = choices > 1
    return {
        "entropy": entropy,
        "relative_entropy": entropy[:, free] / choices[free].log(),
        "logit_rank": torch.linalg.matrix_rank(logits)[:, None].double() / min(logits.shape[1:]),
    }


def direction(weights: Tensor) -> dict[str, Tensor]:
    """Statistics of each query by the distances of its keys, (H, T) each; locality is that of Chen et al. (2023)."""
    distances = relative_distances(weights.size(1), weights.size(2), first=0)
    return {
        "mean_distance": attended_distance(weights, distances),
        "mean_absolute_distance": attended_distance(weights, distances.abs()),
        "locality": (weights * 0.5 ** distances.abs()).sum(-1),
        **{name: (weights * (distances == distance)).sum(-1) for name, distance in SHARES.items()},
    }


def symmetry(weights: Tensor) -> Tensor:
    """Chen et al. (2023): how alike attention is to the left and to the right, as their code computes it; (H, 1).

    For each query the differences |w_(i, i-o) - w_(i, i+o)| of as many offsets o as have keys on both sides are scaled
    so that the least is 0 and the largest 1 (all to 0 where they are equal). One minus their mean over queries and
    offsets is the symmetry of a sentence. The sentence has three tokens or more.
    """
    length = weights.size(1)
    offsets = torch.arange(1, (length - 1) // 2 + 1)
    i = torch.arange(length)[:, None]
    inside = (i >= offsets) & (i + offsets < length)
    left, right = (weights[:, i, (i + side * offsets).clamp(0, length - 1)] for side in (-1, 1))
    differences = (left - right).abs()  # (H, T, offsets)
    least = differences.masked_fill(~inside, torch.inf).amin(-1, keepdim=True)
    spread = differences.masked_fill(~inside, -torch.inf).amax(-1, keepdim=True) - least
    equal = spread < 10 * torch.finfo(weights.dtype).eps
    scaled = torch.where(equal | ~inside, 0, (differences - least) / spread)
    return 1 - scaled.sum((1, 2))[:, None] / inside.sum()


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
        self._sums: dict[str, Any] = defaultdict(int)  # over queries or sentences
        self._counts: dict[str, int] = defaultdict(int)
        self._added = torch.zeros(heads, 2 * FURTHEST + 1, dtype=torch.float64)
        self._pairs = torch.zeros(2 * FURTHEST + 1, dtype=torch.float64)
        self._adds = False

    def add(self, weights: Tensor, logits: Tensor, content: Tensor, visible: Tensor) -> None:
        """Adds one sentence without padding; ``content`` are the logits without positions."""
        weights = weights.double()
        statistics = sharpness(weights, logits, visible)
        if self.keys_are_words:
            statistics |= direction(weights)
            self._add_effect((logits - content).double(), visible)
            if self.is_bidirectional and len(visible) > 2:
                statistics["symmetry"] = symmetry(weights)
        for name, values in statistics.items():
            self._sums[name] += values.sum(1)
            self._counts[name] += values.size(1)

    def _add_effect(self, effect: Tensor, visible: Tensor) -> None:
        self._adds = self._adds or bool(effect[:, visible].any())
        distances = relative_distances(visible.size(0), visible.size(1), first=0)
        near = visible & (distances.abs() <= FURTHEST)
        index = distances[near] + FURTHEST
        self._added.index_add_(1, index, effect[:, near])
        self._pairs += index.bincount(minlength=len(self._pairs))

    def attention(self) -> dict[str, Any]:
        """The statistics of each head; None where one has no meaning or no sentence was long enough."""
        means: dict[str, list[Any]] = dict.fromkeys((*STATISTICS, *SHARES), [None] * self.heads)
        means |= {name: (self._sums[name] / count).tolist() for name, count in self._counts.items() if count}
        heads = []
        for head in range(self.heads):
            share = {name: means[name][head] for name in SHARES} if self.keys_are_words else None
            heads.append({**{name: means[name][head] for name in STATISTICS}, "share": share})
        return {"heads": heads}

    def position_logits(self) -> dict[str, Any] | None:
        """The mean of what positions add to the logits by distance, for each head; None where they add nothing."""
        if not self._adds:
            return None
        occurs = self._pairs > 0
        means = self._added[:, occurs] / self._pairs[occurs]
        return {"distances": (occurs.nonzero()[:, 0] - FURTHEST).tolist(), "heads": means.tolist()}
