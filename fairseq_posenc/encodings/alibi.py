"""Attention with linear biases of Press et al. (2022), "ALiBi", https://arxiv.org/abs/2108.12409."""

import math

import torch
from torch import Tensor

from ..attention.positions import Positions
from .registry import register_encoding
from .shared.distance import DistanceBias


@register_encoding("alibi")
class ALiBi(DistanceBias):
    r"""A fixed penalty on the logits, linear in the distance, with a different slope in each head.

    .. math:: A_{ij} = q_i k_j^T / \sqrt{d} - m_h |i - j|

    The paper's model is causal, where |i - j| = i - j; in an encoder this is the symmetric form. The authors' code adds
    m_h j, which differs by a constant for each query, and the softmax is invariant to that.

    No parameters. Distances are unlimited. Extra time and memory: O(H T S), independent of batch and head_dim.
    """

    slopes: Tensor

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__(num_heads, head_dim)
        self.register_buffer("slopes", torch.tensor(slopes(num_heads), dtype=torch.float64), persistent=False)

    @property
    def shared_by_layers(self) -> bool:
        return True  # it has no parameters

    def of_distances(self, positions: Positions) -> Tensor:
        return -self.slopes[:, None] * positions.span.abs()


def slopes(num_heads: int) -> list[float]:
    """The slopes m_h: 2^(-8/H), 2^(-16/H), ... if H is a power of two.

    Otherwise, as in the authors' code, the slopes of the next lower power of two, followed by every other slope of the
    next higher power of two.
    """
    lower = 2 ** int(math.log2(num_heads))
    own = [2 ** (-8 * (h + 1) / lower) for h in range(lower)]
    return own + [2 ** (-8 * (h + 1) / (2 * lower)) for h in range(0, 2 * (num_heads - lower), 2)]
