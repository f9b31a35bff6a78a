"""Encodings whose bias is a scalar for each head and pair of absolute positions."""

from __future__ import annotations

from torch import Tensor

from ...positions import Positions
from ..contract.base import Facts, PositionEncoding
from .distance import cached_for_layers
from .tables import check_length


class PairBias(PositionEncoding):
    """Base class of biases that depend on the absolute positions of query and key only.

    One (H, n, m) matrix serves all sentences, all layers that share the encoding, and all steps of a generation.
    Positions are counted from 0 without padding. A subclass implements :meth:`matrix` and sets ``max_positions``.
    """

    facts = Facts(reads="integers", bias_by_blocks=False)
    #: maximum length of queries and keys
    max_positions: int

    def matrix(self, queries: int, keys: int) -> Tensor:
        """The bias for query positions 0 to queries - 1 and key positions 0 to keys - 1, (H or 1, queries, keys)."""
        raise NotImplementedError

    def bias(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        extent = positions.extent
        check_length(self, max(extent), self.max_positions)
        if positions.cache.generation is None:
            matrix = cached_for_layers(self, positions, lambda: self.matrix(*extent))
        else:
            matrix = positions.cache.get_for_generation(
                self, max(extent), lambda n: self.matrix(n, n), self.max_positions
            )
        return positions.by_position(matrix.to(q.dtype))
