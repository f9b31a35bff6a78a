"""Encodings whose bias is a scalar for each head and distance."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ...kernels.flex import ScoreMod
from ...positions import Positions
from ..contract.base import PositionEncoding
from .clamp import converted


class DistanceBias(PositionEncoding):
    """Base class of biases that depend on the distance only, and are the same for all sentences.

    A subclass implements :meth:`bias_by_distance`.
    """

    def bias_by_distance(self, positions: Positions) -> Tensor:
        """The bias for all distances of ``positions.span``, (H or 1, distances)."""
        raise NotImplementedError(f"{type(self).__name__} must define bias_by_distance.")

    def learned_by_distance(self, positions: Positions) -> dict[str, Tensor]:
        names = ", ".join(name for name, _ in self.named_parameters(recurse=False))
        return {names: self.bias_by_distance(positions)} if names else {}

    def bias(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        return cached_for_layers(
            self, positions, lambda: positions.by_distance(converted(self.bias_by_distance(positions), q.dtype))
        )

    def score_mod(self, q: Tensor, k: Tensor, positions: Positions) -> ScoreMod:
        values = converted(self.bias_by_distance(positions), q.dtype)
        per_head = values.size(0) > 1
        origin = positions.queries - 1  # index in ``span`` of the distance between the first query and the first key
        return lambda score, b, h, i, j: score + values[h * per_head, j - i + origin]


def cached_for_layers(encoding: PositionEncoding, positions: Positions, make: Callable[[], Tensor]) -> Tensor:
    """``make()``, cached for this pass if all layers share the encoding."""
    if encoding.shared_by_layers is not True:
        return make()
    value: Tensor = positions.cache.get(encoding, make, learned=True)
    return value
