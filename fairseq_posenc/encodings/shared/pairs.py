"""What encodings by absolute positions have in common: a matrix of biases for each pair of positions."""

from __future__ import annotations

from torch import Tensor

from ...attention.positions import Positions
from ..base import PositionEncoding
from .tables import check_length


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
            matrix = positions.kept(self, lambda length: self.matrix(length, length), self.max_positions)
        return positions.by_position(matrix.to(q.dtype))
