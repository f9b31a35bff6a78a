"""Decoupled positional attention of Chen et al. (2021), "DIET", https://arxiv.org/abs/2104.08698."""

import torch
from torch import Tensor, nn

from ..positions import Positions
from .base import (
    CLIPPING_DISTANCE,
    POSITION_SHARING,
    PositionEncoding,
    register_encoding,
    table_heads,
    table_rows,
)


@register_encoding("diet_rel")
class DietRel(PositionEncoding):
    r"""One learned scalar for each head and distance, added to the logits.

    .. math:: A_{ij} = q_i k_j^T / \sqrt{d} + R_{i - j}  \quad (3)

    R is not scaled. It is stored by this package's distance j - i, the mirror of the paper's index. The paper trains on
    a fixed length and needs no clipping; here distances beyond ``clipping_distance`` take the table's last value.

    Parameter: ``relative_bias`` (H, 2K + 1), or (1, 2K + 1) where heads share it; row t is distance j - i = t - K.
    Extra time and memory: O(H T S), independent of batch and head_dim.
    """

    options = {"clipping_distance": CLIPPING_DISTANCE, "position_sharing": POSITION_SHARING}

    def __init__(
        self, num_heads: int, head_dim: int, clipping_distance: int = 128, position_sharing: str = "none"
    ) -> None:
        super().__init__(num_heads, head_dim)
        self.clipping_distance = clipping_distance
        self.position_sharing = position_sharing
        shape = table_heads(num_heads, position_sharing), table_rows(clipping_distance)
        self.relative_bias = nn.Parameter(torch.empty(shape))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        # The paper names no initializer; this is that of the BERT on which it builds.
        nn.init.normal_(self.relative_bias, std=0.02)

    def bias(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        rows, index = positions.clipped(self.clipping_distance)
        table = self.relative_bias[:, rows].to(q.dtype)
        return table.index_select(1, index.flatten()).view(-1, *index.shape)  # (H or 1, T, S)
