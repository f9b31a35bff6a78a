"""The fused kernel with a bias that learns, whose gradient PyTorch does not compute on a CPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..precision import at_least_single


def softmax(logits: Tensor, dim: int = -1) -> Tensor:
    """The softmax in single precision at least."""
    return torch.softmax(logits, dim=dim, dtype=at_least_single(logits.dtype))


class FusedWithLearnedBias(torch.autograd.Function):
    """PyTorch's fused kernel, and the gradient of its bias.

    It has no gradient of second order.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, only_save: bool) -> Tensor:
        """The output (B, H, T, d).

        Args:
            q: (B, H, T, d), scaled.
            k, v: (B, H, S, d).
            bias: added to the logits, broadcastable to (B, H, T, S).
            only_save: whether a checkpoint recomputes what the gradient needs; the output is then arbitrary.
        """
        ctx.save_for_backward(q, k, v, bias)
        if only_save:
            return torch.empty_like(q)
        return F.scaled_dot_product_attention(q, k, v, bias.detach(), scale=1.0)  # else the kernel would not be fused

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias = ctx.saved_tensors
        with torch.autocast(q.device.type, enabled=False):  # autocast would change the types of some of these only
            grad_output = grad_output.to(v.dtype)
            logits = q @ k.transpose(-2, -1)
            logits += bias
            weights = softmax(logits).to(v.dtype)
            del logits
            grad_weights = grad_output @ v.transpose(-2, -1)
            grad_v = weights.transpose(-2, -1) @ grad_output
            grad_logits = torch.ops.aten._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            del grad_weights, weights
            return (
                grad_logits @ k,
                grad_logits.transpose(-2, -1) @ q,
                grad_v,
                grad_logits.sum_to_size(bias.shape).to(bias.dtype),
                None,
            )
