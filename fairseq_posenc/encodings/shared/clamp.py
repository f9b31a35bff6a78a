"""Clamps: one that does not end learning, and one to the range of half precision."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def clamp_straight_through(x: Tensor, low: float, high: float | None = None) -> Tensor:
    """Clamps x with a straight-through gradient, so that a value beyond a bound can come back."""
    clamped: Tensor = _StraightThrough.apply(x, low, high)
    return clamped


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float | None) -> Tensor:
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad, None, None


def converted(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """The bias in this precision and finite: infinities at masked keys, or at all that padding sees, give NaN."""
    if dtype == torch.float16 and bias.dtype != dtype:
        bias = bias.clamp(torch.finfo(dtype).min / 4, torch.finfo(dtype).max)
    return bias.to(dtype)
