"""Universal relative position encoding of Luo et al. (2022), "URPE", https://arxiv.org/abs/2205.13401.

It is combined with an encoding that adds a bias, by ``--urpe true``.
"""

import torch
from torch import Tensor, nn

from ...positions import Positions, look_up
from .gain import LearnedScalars

#: larger distances have the factor of this one; the authors' experiments have sentences of up to 128 tokens
FURTHEST = 128


class ToeplitzFactors(LearnedScalars):
    r"""One learned factor for each head and distance, by which the weights are multiplied after the softmax.

    .. math:: \mathrm{softmax}(A) \circ C, \quad C_{ij} = c_{j - i}

    The weights of a query then no longer sum to 1, and may be negative.

    Parameter: ``factors`` (H, 2K + 1) with K = 128, initially 1; column t is distance t - K, and distances beyond K are
    clipped. As in the authors' code, the layers of a stack share it.
    """

    scalars = {"factors": 1.0}

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.ones(num_heads, 2 * FURTHEST + 1))

    def forward(self, positions: Positions) -> Tensor:
        """The factors C, (H, T, S) or (B, H, T, S)."""

        def for_pairs() -> Tensor:
            rows, index, *_ = positions.clipped(FURTHEST, FURTHEST)
            return look_up(self.effective("factors")[:, rows], index)

        return positions.cache.get(self, for_pairs, learned=True)

    def by_distance(self, positions: Positions) -> Tensor:
        """The factors for all distances of ``positions.span``, (H, distances)."""
        return self.effective("factors")[:, positions.span_rows(FURTHEST, FURTHEST)]
