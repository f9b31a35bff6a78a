"""Relative position representations of Shaw, Uszkoreit and Vaswani (2018), https://arxiv.org/abs/1803.02155."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..kernels.flex import ScoreMod
from ..masks import Masks
from ..positions import Positions
from .contract.base import weights
from .contract.options import CLIPPING_DISTANCE, option, parse_bool
from .contract.registry import register_encoding
from .shared.clipped import ClippedEncoding
from .shared.tables import clipped_score_mod, logits_of_queries, per_head, weighted_sum


@register_encoding("shaw")
class Shaw(ClippedEncoding):
    r"""Learned vectors of the clipped distance on keys and values.

    .. math::
        e_{ij} &= q_i (k_j + a^K_{ij})^T / \sqrt{d}                 \quad (4) \\
        z_i    &= \sum_j \alpha_{ij} (v_j + a^V_{ij})               \quad (3) \\
        a_{ij} &= w_{\mathrm{clip}(j - i, -K, K)}

    Both sums are split, so that no (T, S, d) tensor is made: q is multiplied by each of the 2K + 1 vectors once, and
    the weights are summed by distance before they are multiplied by the value vectors. Extra memory
    O(B H T min(K, S)), extra time O(B H T min(K, S) d).

    Parameters: ``relative_keys`` and ``relative_values``, each (H, 2K + 1, d), or (1, 2K + 1, d) if heads share them;
    row t is distance t - K. In the paper's base model each head has its own vectors (``none``), in its big model heads
    share them (``head``).
    """

    clipping_distance: int = option(16, CLIPPING_DISTANCE)
    has_keys: bool = option(True, parse_bool, "relative vectors on the keys, true or false", name="relative_keys")
    has_values: bool = option(True, parse_bool, "relative vectors on the values, true or false", name="relative_values")

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        shape = self.table_shape(head_dim)
        self.relative_keys = nn.Parameter(torch.empty(shape)) if self.has_keys else None
        self.relative_values = nn.Parameter(torch.empty(shape)) if self.has_values else None
        # tensor2tensor initializes each head's (2K + 1, d) by Xavier-uniform, shared or not.
        for table in self.parameters():
            for head in table:
                nn.init.xavier_uniform_(head)

    def needs_logits(self, positions: Positions | None = None) -> bool:
        return self.relative_values is not None

    def bias(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor | None:
        if self.relative_keys is None:
            return None
        clipped = self.clipped(positions)
        return logits_of_queries(q, self.relative_keys[:, clipped.rows], clipped)

    def score_mod(self, q: Tensor, k: Tensor, positions: Positions) -> ScoreMod | None:
        if self.relative_keys is None:
            return None
        by_row = per_head(q, self.relative_keys.transpose(-2, -1))
        return clipped_score_mod(by_row, positions, self.clipping_distance, self.clipping_distance)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, positions: Positions, masks: Masks, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        if self.relative_values is None:
            return super().attend(q, k, v, positions, masks, dropout)
        found = weights(self, q, k, positions, masks).to(v.dtype)
        dropped = F.dropout(found, dropout) if dropout > 0 else found
        clipped = self.clipped(positions)
        of_values = weighted_sum(dropped, self.relative_values[:, clipped.rows], clipped)
        output = dropped @ v  # last: a checkpoint that recomputes the weights then leaves this product out
        output += of_values
        return output, found
