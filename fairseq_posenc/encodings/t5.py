"""Bucketed relative biases of Raffel et al. (2020), "T5", https://arxiv.org/abs/1910.10683."""

import torch
from torch import Tensor, nn

from ..positions import Positions
from .contract.base import Facts
from .contract.options import BIDIRECTIONAL, MAX_DISTANCE, NUM_BUCKETS, POSITION_SHARING, SHARED_BY_LAYERS
from .contract.registry import register_encoding
from .shared.buckets import by_clamped_distance, log_buckets
from .shared.distance import DistanceBias
from .shared.tables import table_heads


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

    options = {
        "num_buckets": NUM_BUCKETS,
        "max_distance": MAX_DISTANCE,
        "position_sharing": POSITION_SHARING,
        "bidirectional": BIDIRECTIONAL,
    }
    # Initial values 1: normally distributed, with a standard deviation of 0.02.
    facts = Facts(supports_cross_attention=True, initial_values=2)
    scalars = {"relative_bias": 0.0}
    buckets: Tensor

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        position_sharing: str = "layer",  # as in T5
        bidirectional: bool = True,
    ) -> None:
        super().__init__(num_heads, head_dim)
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.shared_by_layers = position_sharing in SHARED_BY_LAYERS
        self.register_buffer("buckets", log_buckets(num_buckets, max_distance, bidirectional), persistent=False)
        self.relative_bias = nn.Parameter(torch.empty(table_heads(num_heads, position_sharing), num_buckets))
        nn.init.xavier_uniform_(self.relative_bias)  # the authors': 0.224 on average for 8 heads and 32 buckets

    def of_distances(self, positions: Positions) -> Tensor:
        return self.effective("relative_bias")[:, by_clamped_distance(self.buckets, positions.span)]
