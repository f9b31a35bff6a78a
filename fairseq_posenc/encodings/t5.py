"""Bucketed relative biases of Raffel et al. (2020), "T5", https://arxiv.org/abs/1910.10683."""

from typing import Any

import torch
from torch import Tensor, nn

from ..positions import Positions
from .contract.base import Facts
from .contract.options import BIDIRECTIONAL, MAX_DISTANCE, NUM_BUCKETS, POSITION_SHARING, option
from .contract.registry import register_encoding
from .shared.buckets import by_clamped_distance, log_buckets
from .shared.distance import DistanceBias


@register_encoding("t5")
class T5(DistanceBias):
    r"""One learned scalar for each head and bucket of distances, added to the logits.

    .. math:: A_{ij} = q_i k_j^T / \sqrt{d} + b_{\mathrm{bucket}(j - i)}

    Buckets are those of :func:`.shared.buckets.log_buckets`: in both directions in an encoder and in cross-attention,
    to the left only in a decoder. T5 does not scale q k^T and compensates by its initialization; here q k^T keeps
    fairseq's scaling.

    Parameter: ``relative_bias`` (H, num_buckets), or (1, num_buckets) if heads share it. Distances are unlimited.
    Extra time and memory: O(H T S), independent of batch and head_dim.
    """

    num_buckets: int = option(32, NUM_BUCKETS)
    max_distance: int = option(128, MAX_DISTANCE)
    position_sharing: str = option("layer", POSITION_SHARING)  # as in T5
    bidirectional: bool = option(True, BIDIRECTIONAL)
    # Initial values 1: normally distributed, with a standard deviation of 0.02.
    facts = Facts(supports_cross_attention=True, initial_values=2)
    scalars = {"relative_bias": 0.0}
    buckets: Tensor

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        buckets = log_buckets(self.num_buckets, self.max_distance, self.bidirectional)
        self.register_buffer("buckets", buckets, persistent=False)
        self.relative_bias = nn.Parameter(torch.empty(self.table_heads, self.num_buckets))
        nn.init.xavier_uniform_(self.relative_bias)  # the authors': 0.224 on average for 8 heads and 32 buckets

    def bias_by_distance(self, positions: Positions) -> Tensor:
        key = "log buckets", self.num_buckets, self.max_distance, self.bidirectional
        rows = positions.cache.get(key, lambda: by_clamped_distance(self.buckets, positions.span))
        return self.effective("relative_bias")[:, rows]
