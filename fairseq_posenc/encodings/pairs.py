"""What encodings by absolute positions have in common: a matrix of biases for each pair of positions."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..positions import Positions
from .base import PositionEncoding, check_length


class PairBias(PositionEncoding):
    """A bias that depends on the absolute positions of query and key and on no token, so that one (H, n, m) matrix
    serves all sentences, all layers that share the encoding, and all steps of a generation.

    Positions count real tokens from 0. A subclass computes the matrix in :meth:`matrix`, and sets ``max_positions``.
    """

    bias_by_blocks = False
    #: longest sequence of queries or keys
    max_positions: int

    def matrix(self, queries: int, keys: int) -> Tensor:
        """The bias for query positions 0 to queries - 1 and key positions 0 to keys - 1, (H or 1, queries, keys)."""
        raise NotImplementedError

    def bias(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        extent = positions.extent
        check_length(self, max(extent), self.max_positions)
        if positions.generation is None:
            matrix = self.once_for_layers(positions, lambda: self.matrix(*extent))
        else:
            matrix = self._kept_matrix(positions.generation, extent)
        return positions.by_position(matrix.to(q.dtype))

    def _kept_matrix(self, generation: dict[Any, Any], extent: tuple[int, int]) -> Tensor:
        """Over the steps of a generation the matrix is computed a few times only, each time for twice the length."""
        matrix: Tensor | None = generation.get(self)
        if matrix is None or matrix.size(1) < extent[0] or matrix.size(2) < extent[1]:
            queries, keys = (min(max(64, 2 * length), self.max_positions) for length in extent)
            matrix = generation[self] = self.matrix(queries, keys)
        return matrix
