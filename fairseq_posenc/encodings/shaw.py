"""Relative position representations of Shaw, Uszkoreit and Vaswani (2018), https://arxiv.org/abs/1803.02155."""

from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.flex import ScoreMod
from ..positions import Positions
from .contract.base import Facts
from .contract.options import CLIPPING_DISTANCE, option, parse_bool
from .contract.registry import register_encoding
from .shared.clipped import ClippedEncoding
from .shared.tables import clipped_score_mod, logits_of_queries, weighted_sum


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

    facts = Facts(supports_cross_attention=True)
    clipping_distance: int = option(16, CLIPPING_DISTANCE)
    has_keys: bool = option(True, parse_bool, "relative vectors on the keys, true or false", name="relative_keys")
    has_values: bool = option(True, parse_bool, "relative vectors on the values, true or false", name="relative_values")

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        shape = self.table_shape(head_dim)
        self.relative_keys = nn.Parameter(torch.empty(shape)) if self.has_keys else None
        self.relative_values = nn.Parameter(torch.empty(shape)) if self.has_values else None
        needed = {"bias": self.has_keys, "context": self.has_values}
        self.hooks = tuple(hook for hook in self.hooks if needed.get(hook, True))
        # tensor2tensor initializes each head's (2K + 1, d) by Xavier-uniform, shared or not.
        for table in self.parameters():
            for head in table:
                nn.init.xavier_uniform_(head)

    def bias(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        assert self.relative_keys is not None, "only then is it a hook"
        clipped = self.clipped(positions)
        vectors = self.relative_keys[:, clipped.rows]  # (H or 1, rows, d)
        return logits_of_queries(q, vectors, clipped)  # (B, H, T, S)

    def score_mod(self, q: Tensor, k: Tensor, positions: Positions) -> ScoreMod:
        assert self.relative_keys is not None, "only then is it a hook"
        return clipped_score_mod(q, self.relative_keys, positions, self.clipping_distance, self.clipping_distance)

    def context(self, weights: Tensor, positions: Positions) -> Tensor:
        assert self.relative_values is not None, "only then is it a hook"
        clipped = self.clipped(positions)
        vectors = self.relative_values[:, clipped.rows]  # (H or 1, rows, d)
        return weighted_sum(weights, vectors, clipped)  # (B, H, T, d)
