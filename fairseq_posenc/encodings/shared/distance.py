"""Encodings whose bias is a scalar for each head and distance."""

from __future__ import annotations

from torch import Tensor

from ...attention.flex_kernel import ScoreMod
from ...attention.positions import Positions
from ..base import PositionEncoding


class DistanceBias(PositionEncoding):
    """A bias that depends on the distance and on no token: one (H, T, S) tensor for all sentences, and for all layers
    that share the encoding. A subclass implements :meth:`of_distances`.
    """

    def of_distances(self, positions: Positions) -> Tensor:
        """The bias of every distance of ``positions.span``, (H or 1, distances)."""
        raise NotImplementedError

    def learned_by_distance(self, positions: Positions) -> dict[str, Tensor]:
        names = ", ".join(name for name, _ in self.named_parameters(recurse=False))
        return {names: self.of_distances(positions)} if names else {}

    def bias(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        return self.cached_for_layers(
            positions, lambda: positions.by_distance(self.of_distances(positions).to(q.dtype))
        )

    def score_mod(self, q: Tensor, k: Tensor, positions: Positions) -> ScoreMod:
        values = self.of_distances(positions).to(q.dtype)
        own_values = values.size(0) > 1
        origin = positions.queries - 1  # index in the span of the distance of the first query and the first key
        return lambda score, b, h, i, j: score + values[h * own_values, j - i + origin]
