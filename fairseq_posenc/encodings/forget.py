"""Data-dependent decay of Lin et al. (2025), "Forgetting Transformer", https://arxiv.org/abs/2503.02130."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..kernels.flex import ScoreMod
from ..positions import Positions
from ..precision import at_least_single
from .contract.base import Facts, PositionEncoding, Projections
from .contract.options import BIDIRECTIONAL, option
from .contract.registry import register_encoding
from .shared.clamp import converted


@register_encoding("forget")
class Forget(PositionEncoding):
    r"""A penalty on the logits: the sum of penalties that learned gates give the tokens from key to query.

    .. math::
        A_{ij} &= q_i k_j^T / \sqrt{d} + \sum_{l = j + 1}^{i} \log f_l \quad (j \le i), \qquad
        q_i k_j^T / \sqrt{d} + \sum_{l = i + 1}^{j} \log g_l \quad (j > i) \\
        (f_l, g_l) &= \sigma(W x_l + b)

    x is the layer's input. The paper's model is causal; gates to the right are those of x-transformers. In a decoder
    there are gates to the left only, and keys to the right must be masked: the first sum is extended to them as
    F_i - F_j, where F_i is the sum of log f up to i. Padding counts as gates of 1.

    Parameters: ``gates.weight`` (2 H, H d) and ``gates.bias`` (2 H), first to the left, then to the right, or H of each
    in a decoder; biases start at 5, as in x-transformers, so that gates start near 1. Distances are unlimited. Extra
    time and memory: O(B H T S + B S H² d).
    """

    facts = Facts(reads="nothing")
    bidirectional: bool = option(True, BIDIRECTIONAL)

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        self.gates = nn.Linear(num_heads * head_dim, num_heads * (2 if self.bidirectional else 1))
        nn.init.constant_(self.gates.bias, 5.0)

    def read_layer(self, x: Tensor, projections: Projections | None) -> Tensor:
        """The logarithms of the gates, (B, H, n, 2 or 1), in single precision at least."""
        by_token = x.transpose(0, 1)  # as fairseq's layers keep it in memory, so that nothing is copied
        logits = F.linear(by_token, self.gates.weight.to(x.dtype), self.gates.bias.to(x.dtype))
        log_gates = F.logsigmoid(logits.to(at_least_single(x.dtype)))
        return log_gates.unflatten(-1, (-1, self.num_heads)).permute(1, 3, 0, 2)

    def sums(self, positions: Positions, log_gates: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For each side, the sums of log gates up to each query, (B, H, T), and up to each key, (B, H, S)."""
        if positions.padding_mask is not None:
            log_gates = log_gates.masked_fill(positions.padding_mask[:, None, :, None], 0)
        first, end = positions.first, positions.first + positions.queries
        return [(up_to_keys[:, :, first:end], up_to_keys) for up_to_keys in log_gates.cumsum(2).unbind(-1)]

    def bias(self, q: Tensor, k: Tensor, positions: Positions, from_input: Tensor) -> Tensor:
        sums = self.sums(positions, from_input)
        left, *right = (up_to_queries[..., None] - up_to_keys[..., None, :] for up_to_queries, up_to_keys in sums)
        bias = left.tril(positions.first) - right[0].triu(positions.first) if right else left
        return converted(bias, q.dtype)

    def score_mod(self, q: Tensor, k: Tensor, positions: Positions, from_input: Tensor) -> ScoreMod:
        up_to_queries, up_to_keys = zip(*self.sums(positions, from_input), strict=True)
        first = positions.first

        def add_sum(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            added = up_to_queries[0][b, h, i] - up_to_keys[0][b, h, j]
            if self.bidirectional:
                added = torch.where(j <= i + first, added, up_to_keys[1][b, h, j] - up_to_queries[1][b, h, i])
            return score + added.to(score.dtype)

        return add_sum
