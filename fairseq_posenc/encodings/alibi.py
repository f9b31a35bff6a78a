"""Attention with linear biases of Press et al. (2022), "ALiBi", https://arxiv.org/abs/2108.12409."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..positions import Positions
from ..precision import at_least_single
from .contract.base import Facts
from .contract.options import BIDIRECTIONAL, option
from .contract.registry import register_encoding
from .shared.distance import DistanceBias


@register_encoding("alibi")
class ALiBi(DistanceBias):
    r"""A penalty on the logits, linear in the distance, with a different slope in each head.

    .. math:: A_{ij} = q_i k_j^T / \sqrt{d} - m_h |i - j|

    The paper's model is causal, where |i - j| = i - j; in an encoder this is the symmetric form. The authors' code adds
    m_h j, which differs by a constant for each query, and the softmax is invariant to that.

    The slopes m_h are those of the paper if ``alibi_slopes`` is "fixed". If "learned", they are exp(theta_h) and start
    at the fixed ones, as in x-transformers. If "two-sided", they are sigmoid(theta_h) with theta normally distributed
    around -2, one for keys to the left and one for keys to the right, as the first author suggests for encoders
    (https://github.com/ofirpress/attention_with_linear_biases/issues/5); a decoder has those to the left only.

    Parameters: none; or ``log_slopes`` (H,); or ``slope_logits`` (2, H), left and right, in a decoder (1, H). All
    layers share them. Distances are unlimited. Extra time and memory: O(H T S), independent of batch and head_dim.
    """

    facts = Facts(supports_cross_attention=True)
    alibi_slopes: str = option(
        "fixed",
        str,
        "the slopes of the penalty: fixed as in the paper, learned from there, or two-sided (learned; own ones to "
        "the left and to the right)",
        ("fixed", "learned", "two-sided"),
    )
    bidirectional: bool = option(True, BIDIRECTIONAL)
    scalars = {"log_slopes": 0.0, "slope_logits": 0.0}
    shared_by_layers = True
    slopes: Tensor

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        self.log_slopes = self.slope_logits = None
        fixed = torch.tensor(slopes(num_heads), dtype=torch.float64)
        if self.alibi_slopes == "fixed":
            self.register_buffer("slopes", fixed, persistent=False)
        elif self.alibi_slopes == "learned":
            self.log_slopes = nn.Parameter(fixed.log().to(torch.get_default_dtype()))
        else:
            self.slope_logits = nn.Parameter(torch.randn(1 + self.bidirectional, num_heads) - 2)

    def bias_by_distance(self, positions: Positions) -> Tensor:
        if self.slope_logits is not None:
            sides = self.effective("slope_logits").sigmoid()
            slopes = sides[(positions.span > 0).long().clamp(max=len(sides) - 1)].T
            return -slopes * positions.span.abs()
        if self.log_slopes is None:
            return -self.slopes[:, None] * positions.span.abs()
        log_slopes = self.effective("log_slopes")
        log_slopes = log_slopes.to(at_least_single(log_slopes.dtype))  # exp(12) is inf in float16
        return -log_slopes.exp()[:, None] * positions.span.abs()


def slopes(num_heads: int) -> list[float]:
    """The slopes m_h: 2^(-8/H), 2^(-16/H), ... if H is a power of two.

    Otherwise, as in the authors' code, the slopes of the next lower power of two, followed by every other slope of the
    next higher power of two.
    """
    lower = 2 ** int(math.log2(num_heads))
    own = [2 ** (-8 * (h + 1) / lower) for h in range(lower)]
    return own + [2 ** (-8 * (h + 1) / (2 * lower)) for h in range(0, 2 * (num_heads - lower), 2)]
