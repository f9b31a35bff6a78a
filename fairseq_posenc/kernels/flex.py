"""A wrapper of PyTorch's FlexAttention, https://pytorch.org/blog/flexattention/.

FlexAttention compiles a fused kernel from a Python function that modifies one logit. Memory is linear in the length.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from ..masks import Masks
from ..positions import Positions

#: tests set this to False: PyTorch's plain form is quick to start and has gradients on a CPU too
COMPILED = True
#: maximum number of kernels in a process; there is one for each kind of encoding and masks, not for each length
MOST_KERNELS = 64

#: (logit, sentence, head, query, key) to the new logit
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def flex_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Positions,
    masks: Masks,
    score_mod: ScoreMod | None = None,
) -> Tensor:
    """Computes attention with FlexAttention.

    Args:
        q: (B, H, T, d), scaled.
        k, v: (B, H, S, d).
        score_mod: modifies the logits before the masks.

    Returns:
        output (B, H, T, d).
    """
    if masks.attn_bias is not None:
        score_mod = chained(score_mod, dense_score_mod(masks.attn_bias))
    block_mask = _block_mask(q, k, positions, masks)
    output: Tensor = (_compiled() if COMPILED else flex_attention)(q, k, v, score_mod, block_mask, scale=1.0)
    return output


@cache
def _compiled_block_mask() -> Any:
    return _compile(create_block_mask)


@cache
def _compiled() -> Any:
    # fullgraph: fail rather than fall back to the uncompiled implementation, which materializes all logits.
    return _compile(flex_attention, dynamic=True, fullgraph=True)


def _compile(function: Any, **options: Any) -> Any:
    # Without a limit of its own, PyTorch compiles 8 kernels in a process. Older versions have no such option.
    if "recompile_limit" in inspect.signature(torch.compile).parameters:
        options["recompile_limit"] = MOST_KERNELS
    return torch.compile(function, **options)


def dense_score_mod(bias: Tensor) -> ScoreMod:
    """A score_mod that adds a 4-dimensional bias, broadcastable to (B, H, T, S)."""
    entry = broadcast_reader(bias)
    return lambda score, b, h, i, j: score + entry(b, h, i, j)


def broadcast_reader(x: Tensor) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """A function that indexes a 4-dimensional x as if it were broadcast to (B, H, T, S)."""
    batch, heads, queries, keys = (size > 1 for size in x.shape)
    return lambda b, h, i, j: x[b * batch, h * heads, i * queries, j * keys]


def chained(first: ScoreMod | None, second: ScoreMod) -> ScoreMod:
    """A score_mod that applies ``first``, then ``second``."""
    if first is None:
        return second
    return lambda score, b, h, i, j: second(first(score, b, h, i, j), b, h, i, j)


def _block_mask(q: Tensor, k: Tensor, positions: Positions, masks: Masks) -> BlockMask | None:
    """FlexAttention's block mask, cached for the pass; None if every query attends to every key."""
    padding, forbidden = masks.key_padding_mask, masks.forbidden
    if padding is None and forbidden is None:
        return None
    is_forbidden = None if forbidden is None else broadcast_reader(forbidden)

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        seen = j >= 0
        if padding is not None:
            seen = seen & ~padding[b, j]
        if is_forbidden is not None:
            seen = seen & ~is_forbidden(b, h, i, j)
        return seen

    by_sentence = padding is not None or (forbidden is not None and forbidden.size(0) > 1)
    by_head = forbidden is not None and forbidden.size(1) > 1

    def make() -> BlockMask:
        make_mask: Any = _compiled_block_mask() if COMPILED else create_block_mask
        return make_mask(
            visible,
            q.size(0) if by_sentence else None,
            q.size(1) if by_head else None,
            q.size(2),
            k.size(2),
            device=q.device,
        )

    return positions.cache.get(("block mask", masks), make)
