"""Functional interpolation of Li et al. (2024), "FIRE", https://arxiv.org/abs/2310.04418."""

from typing import Any

import torch
from torch import Tensor, nn

from ..positions import Positions, by_pair, look_up
from .contract.base import ADDED, Facts, PositionEncoding
from .contract.options import BIDIRECTIONAL, POSITION_SHARING, option, positive
from .contract.registry import register_encoding
from .shared.distance import cached_for_layers

#: width of the hidden layer, and the summand that avoids a division by zero; both are the authors'
HIDDEN, EPSILON = 32, 1e-6


@register_encoding("fire")
class FIRE(PositionEncoding):
    r"""A learned function of the distance relative to the query's position, on a logarithmic scale.

    .. math:: A_{ij} = q_i k_j^T / \sqrt{d} + f\left(\frac{\psi(i - j)}{\psi(\max(L, i))}\right), \quad
        \psi(x) = \log(1 + c x)

    f has one hidden layer of 32 ReLU units and an output for each head. The paper is causal; i is counted from 0. In an
    encoder, by this package's convention, the distance is |i - j|, the sentence's length n replaces i in the
    denominator, and f has a second input, which is 1 for later keys and 0 otherwise. As in the authors' code, L is
    ``fire_threshold`` times a learned factor, c and L count by their absolute values, and the denominator is increased
    by 1e-6.

    Parameters: ``rate`` c and ``threshold_scale``, scalars; ``hidden.weight`` (32, 2), in a decoder (32, 1),
    ``hidden.bias`` (32,), ``output.weight`` (H, 32) and ``output.bias`` (H,), or 1 instead of H if heads share them.
    Distances are unlimited. Extra time and memory: O(B H T S) in an encoder; O((32 + H) T S) in a decoder, for all
    sentences together unless they are padded on the left.
    """

    facts = Facts(supports_cross_attention=True)
    fire_threshold: float = option(
        512.0,
        positive,
        "positions (in an encoder: lengths) below about this one are normalized as if they were this one",
    )
    position_sharing: str = option("none", POSITION_SHARING)
    bidirectional: bool = option(True, BIDIRECTIONAL)

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        self.rate = nn.Parameter(torch.tensor(0.1))
        self.threshold_scale = nn.Parameter(torch.tensor(1.0))
        self.hidden = nn.Linear(1 + self.bidirectional, HIDDEN)
        self.output = nn.Linear(HIDDEN, self.table_heads)

    def learned_by_distance(self, positions: Positions) -> dict[str, Tensor]:
        names = ", ".join(name for name, _ in self.named_parameters() if not name.startswith(ADDED))
        last = torch.tensor(positions.keys if self.bidirectional else positions.keys - 1)
        distances, is_later = self._distances(positions.span)
        return {names: self._f(distances, is_later, last).T}

    def bias(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        make = self._of_sentences if self.bidirectional else self._of_queries
        return cached_for_layers(self, positions, lambda: make(positions).to(q.dtype))

    def _of_sentences(self, positions: Positions) -> Tensor:
        """The bias in an encoder, (B or 1, H, T, S): f is computed for each distance and length only."""
        distances, is_later = positions.cache.get(("fire", self.rate.dtype), lambda: self._distances(positions.span))
        by_distance = self._f(distances, is_later, positions.lengths).transpose(1, 2)  # (B or 1, H, distances)
        if positions.span_index.dim() == 2:
            return look_up(by_distance.flatten(0, 1), positions.span_index).unflatten(0, by_distance.shape[:2])
        index = by_pair(positions.span_index)
        pairs = len(index), by_distance.size(1), positions.queries
        return by_distance[:, :, None].expand(*pairs, -1).gather(-1, index.expand(*pairs, -1))

    def _of_queries(self, positions: Positions) -> Tensor:
        """The bias in a decoder, (B or 1, H, T, S)."""
        # counted in columns, as the distances are, whatever positions an augmentation gives
        before = positions.at_queries(positions.tokens_before)
        distances, is_later = positions.cache.get(
            ("fire", self.rate.dtype), lambda: self._distances(positions.distances)
        )
        return self._f(distances, is_later, before[:, :, None]).permute(0, 3, 1, 2)

    def _distances(self, signed: Tensor) -> tuple[Tensor, Tensor]:
        """Absolute distances, and 1 for those to later keys, 0 for others."""
        return signed.abs(), (signed > 0).to(self.rate.dtype)

    def _f(self, distances: Tensor, is_later: Tensor, last: Tensor) -> Tensor:
        """f of the distances, normalized by the positions or lengths ``last``: of their common shape, then heads."""
        rate, threshold = self.rate.abs(), (self.fire_threshold * self.threshold_scale).abs()
        normalizer = torch.log1p(rate * last.clamp_min(threshold)) + EPSILON
        relative = torch.log1p(rate * distances) / normalizer
        inputs = relative[..., None]
        if self.bidirectional:
            inputs = torch.stack([relative, is_later.expand_as(relative)], dim=-1)
        return self.output(self.hidden(inputs).relu())
