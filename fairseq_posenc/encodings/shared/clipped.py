"""Encodings with tables of clipped distances."""

from __future__ import annotations

from torch import Tensor

from ...positions import Clipped, Positions
from ..contract.base import PositionEncoding
from ..contract.options import CLIPPING_DISTANCE, POSITION_SHARING, option


class ClippedEncoding(PositionEncoding):
    """Base class with tables of 2K + 1 rows; row t is distance j - i = t - K, and distances beyond K are clipped."""

    clipping_distance: int = option(128, CLIPPING_DISTANCE)
    position_sharing: str = option("none", POSITION_SHARING)

    def table_shape(self, *width: int) -> tuple[int, ...]:
        """(H, 2K + 1, ...), or (1, 2K + 1, ...) if heads share the table."""
        return self.table_heads, 2 * self.clipping_distance + 1, *width

    def learned_by_distance(self, positions: Positions) -> dict[str, Tensor]:
        rows = positions.span_rows(self.clipping_distance, self.clipping_distance)
        return {
            name: (self.effective(name) if name in self.scalars else table)[:, rows]
            for name, table in self.named_parameters(recurse=False)
        }

    def clipped(self, positions: Positions) -> Clipped:
        """Indices into the tables."""
        return positions.clipped(self.clipping_distance, self.clipping_distance)
