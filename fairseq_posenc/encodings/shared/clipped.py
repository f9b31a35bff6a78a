"""Encodings with tables of clipped distances."""

from __future__ import annotations

from torch import Tensor

from ...positions import Clipped, Positions
from ..contract.base import PositionEncoding
from ..contract.options import CLIPPING_DISTANCE, POSITION_SHARING, SHARED_BY_LAYERS
from .tables import table_heads

CLIPPED = {"clipping_distance": CLIPPING_DISTANCE, "position_sharing": POSITION_SHARING}


class ClippedEncoding(PositionEncoding):
    """Base class with tables of 2K + 1 rows; row t is distance j - i = t - K, and distances beyond K are clipped.

    Most subclasses make their tables in :meth:`add_tables`.
    """

    options = CLIPPED

    def __init__(
        self, num_heads: int, head_dim: int, clipping_distance: int = 128, position_sharing: str = "none"
    ) -> None:
        super().__init__(num_heads, head_dim)
        self.clipping_distance = clipping_distance
        self.position_sharing = position_sharing
        self.shared_by_layers = position_sharing in SHARED_BY_LAYERS
        self.add_tables()

    def add_tables(self) -> None:
        """Makes the tables; called after the options are set."""

    def table_shape(self, *width: int) -> tuple[int, ...]:
        """(H, 2K + 1, ...), or (1, 2K + 1, ...) if heads share the table."""
        return table_heads(self.num_heads, self.position_sharing), 2 * self.clipping_distance + 1, *width

    def learned_by_distance(self, positions: Positions) -> dict[str, Tensor]:
        rows = positions.span_rows(self.clipping_distance, self.clipping_distance)
        return {
            name: (self.effective(name) if name in self.scalars else table)[:, rows]
            for name, table in self.named_parameters(recurse=False)
        }

    def clipped(self, positions: Positions) -> Clipped:
        """Indices into the tables."""
        return positions.clipped(self.clipping_distance, self.clipping_distance)
