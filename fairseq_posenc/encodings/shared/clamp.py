"""Clamps: one that does not end learning, and one to the range of half precision."""

from __future__ import annotations

import torch
from torch import Tensor


def clamp_straight_through(x: Tensor, low: float, high: float | None = None) -> Tensor:
    """Clamps x with a straight-through gradient, so that a value beyond a bound can come back."""
    return x + (x.clamp(low, high) - x).detach()


def converted(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """The bias in this precision and finite: infinities at masked keys, or at all that padding sees, give NaN."""
    if dtype == torch.float16 and bias.dtype != dtype:
        bias = bias.clamp(torch.finfo(dtype).min / 4, torch.finfo(dtype).max)
    return bias.to(dtype)
