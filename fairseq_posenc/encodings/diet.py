"""Decoupled positional attention of Chen et al. (2021), "DIET", https://arxiv.org/abs/2104.08698."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..positions import Positions
from .contract.base import Facts
from .contract.options import MAX_POSITIONS, POSITION_SHARING, Option, option, whole
from .contract.registry import register_encoding
from .shared.clipped import ClippedEncoding
from .shared.distance import DistanceBias
from .shared.pairs import PairBias

POSITION_RANK = Option(whole(1), "width D of the position vectors of each head; by default the head's width")


@register_encoding("diet_rel")
class DietRel(DistanceBias, ClippedEncoding):
    r"""One learned scalar for each head and distance, added to the logits.

    .. math:: A_{ij} = q_i k_j^T / \sqrt{d} + R_{j - i}  \quad (3)

    R is not scaled. The paper writes R_{i - j}; the table here is indexed by this package's distance j - i. The paper
    trains on a fixed length without clipping; here distances beyond ``clipping_distance`` use the table's last value.

    Parameter: ``relative_bias`` (H, 2K + 1), or (1, 2K + 1) if heads share it; row t is distance j - i = t - K.
    Extra time and memory: O(H T S), independent of batch and head_dim.
    """

    facts = Facts(supports_cross_attention=True)
    scalars = {"relative_bias": 0.0}

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        self.relative_bias = nn.Parameter(torch.empty(self.table_shape()))
        # The paper names no initializer; this is BERT's, on which the paper builds.
        nn.init.normal_(self.relative_bias, std=0.02)

    def bias_by_distance(self, positions: Positions) -> Tensor:
        return self.effective("relative_bias")[:, positions.span_rows(self.clipping_distance, self.clipping_distance)]


@register_encoding("diet_abs")
class DietAbs(PairBias):
    r"""A product of two low-rank matrices of position vectors for each head, added to the logits.

    .. math:: A_{ij} = q_i k_j^T / \sqrt{d} + (P_Q P_K^T)_{ij}  \quad (1)

    The product is not scaled. Layers that share it compute it once per forward pass, and a generation caches it.

    Parameters: ``query_positions`` and ``key_positions``, each (H, max_positions, D), or (1, max_positions, D) if heads
    share them; row t is position t, counted from 0 without padding. Longer sequences are refused.
    Extra time O(H n^2 D) and memory O(H n^2), or O(B H n^2) with left padding.
    """

    position_rank: int | None = option(None, POSITION_RANK)
    position_sharing: str = option("layer", POSITION_SHARING)  # what the paper recommends for these
    max_positions: int = option(1024, MAX_POSITIONS)
    facts = replace(PairBias.facts, supports_cross_attention=True)

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        shape = self.table_heads, self.max_positions, self.position_rank or head_dim
        self.query_positions = nn.Parameter(torch.empty(shape))
        self.key_positions = nn.Parameter(torch.empty(shape))
        for table in (self.query_positions, self.key_positions):
            nn.init.normal_(table, std=0.02)  # as diet_rel

    def matrix(self, queries: int, keys: int) -> Tensor:
        return self.query_positions[:, :queries] @ self.key_positions[:, :keys].transpose(1, 2)
