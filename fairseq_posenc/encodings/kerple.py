"""Kernelized relative positions of Chi et al. (2022), "KERPLE", https://arxiv.org/abs/2205.09921."""

from typing import Any

import torch
from torch import Tensor, nn

from ..positions import Positions
from ..precision import at_least_single
from .contract.base import Facts, PositionEncoding
from .contract.options import POSITION_SHARING, option
from .contract.registry import register_encoding
from .shared.clamp import clamp_straight_through
from .shared.distance import DistanceBias

#: every parameter counts as at least this, as in the authors' code
LEAST = 0.01


def _clamped(encoding: PositionEncoding, name: str, most: float | None = None) -> Tensor:
    """A clamped scalar of each head, (H or 1, 1), in at least single precision."""
    scalar = encoding.effective(name)  # in half precision, powers of long distances overflow
    return clamp_straight_through(scalar.to(at_least_single(scalar.dtype)), LEAST, most)[:, None]


@register_encoding("kerple_log")
class KerpleLog(DistanceBias):
    r"""A logarithmic kernel of the distance with two learned positive scalars per head.

    .. math:: A_{ij} = q_i k_j^T / \sqrt{d} - r_1 \log(1 + r_2 |i - j|)

    As in the authors' code, r1 and r2 are initialized uniformly in (0, 2) and (0, 1) and clamped to at least 0.01. The
    authors overwrite a smaller parameter by 0.01; here the parameter keeps its value and gets a gradient. The authors'
    layers share the scalars, here with ``position_sharing`` "layer".

    Parameters: ``magnitude`` r1 and ``rate`` r2, each (H,), or (1,) if heads share them. Distances are unlimited. Extra
    time and memory: O(H T S).
    """

    facts = Facts(supports_cross_attention=True)
    position_sharing: str = option("none", POSITION_SHARING)
    scalars = {"magnitude": 0.0, "rate": 0.0}

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        self.magnitude = nn.Parameter(2 * torch.rand(self.table_heads))
        self.rate = nn.Parameter(torch.rand(self.table_heads))

    def bias_by_distance(self, positions: Positions) -> Tensor:
        r1, r2 = _clamped(self, "magnitude"), _clamped(self, "rate")
        return -r1 * torch.log1p(r2 * positions.span.abs())


@register_encoding("kerple_power")
class KerplePower(DistanceBias):
    r"""A power of the distance with two learned positive scalars per head.

    .. math:: A_{ij} = q_i k_j^T / \sqrt{d} - r_1 |i - j|^{r_2}, \quad r_1 > 0, \; 0 < r_2 \le 2

    With r2 = 1 it is ALiBi with learned slopes. As in the authors' code, r1 and r2 are initialized uniformly in (0, 1)
    and (0, 2), both are clamped to at least 0.01 and r2 to at most 2, and layers share them. The authors overwrite a
    parameter beyond its limit; here the parameter keeps its value and gets a gradient.

    Parameters: ``magnitude`` r1 and ``exponent`` r2, each (H,), or (1,) if heads share them. Distances are unlimited.
    Extra time and memory: O(H T S), once for all layers.
    """

    facts = Facts(supports_cross_attention=True)
    position_sharing: str = option("layer", POSITION_SHARING)
    scalars = {"magnitude": 0.0, "exponent": 0.0}

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        self.magnitude = nn.Parameter(torch.rand(self.table_heads))
        self.exponent = nn.Parameter(2 * torch.rand(self.table_heads))

    def bias_by_distance(self, positions: Positions) -> Tensor:
        r1, r2 = _clamped(self, "magnitude"), _clamped(self, "exponent", 2.0)
        return -r1 * positions.span.abs().to(r2.dtype) ** r2
