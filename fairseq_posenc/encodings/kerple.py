"""Kernelized relative positions of Chi et al. (2022), "KERPLE", https://arxiv.org/abs/2205.09921."""

import torch
from torch import Tensor, nn

from ..attention.positions import Positions
from .registry import register_encoding
from .shared.distance import DistanceBias


@register_encoding("kerple_log")
class KerpleLog(DistanceBias):
    r"""A logarithmic kernel of the distance with two learned positive scalars a head.

    .. math:: A_{ij} = q_i k_j^T / \sqrt{d} - r_1 \log(1 + r_2 |i - j|)

    As in the authors' code, r1 and r2 start uniform in (0, 2) and (0, 1), and count as at least 0.01. The authors write
    0.01 back into a parameter that fell below it; here it keeps its value and its gradient.

    Parameters: ``magnitude`` r1 and ``rate`` r2, each (H,). Any distance is known. Extra time and memory: O(H T S).
    """

    scalars = {"magnitude": 0.0, "rate": 0.0}

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__(num_heads, head_dim)
        self.magnitude = nn.Parameter(2 * torch.rand(num_heads))
        self.rate = nn.Parameter(torch.rand(num_heads))

    def of_distances(self, positions: Positions) -> Tensor:
        r1, r2 = (at_least(0.01, self.effective(name))[:, None] for name in ("magnitude", "rate"))
        return -r1 * torch.log1p(r2 * positions.span.abs())


def at_least(low: float, x: Tensor) -> Tensor:
    """x clamped from below, with the gradient of x everywhere, so that what fell too low can rise again."""
    return x + (x.clamp(min=low) - x).detach()
