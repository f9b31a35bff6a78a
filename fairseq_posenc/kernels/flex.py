"""A wrapper of PyTorch's FlexAttention, https://pytorch.org/blog/flexattention/.

FlexAttention compiles a fused kernel from a Python function that modifies one logit. Memory is linear in the length.
On a CPU it has no gradients, and where PyTorch cannot compile it there, PyTorch's plain form computes the same from all
logits.
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
from . import flex_on_cpu

#: tests set this to False: PyTorch's plain form is quick to start and has gradients on a CPU too
COMPILED = True
#: maximum number of kernels in a process; there is one for each kind of encoding and masks, not for each length
MOST_KERNELS = 64

#: (logit, sentence, head, query, key) to the new logit
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
#: (query, key), both as indices among all keys, to whether the query attends to the key
PairMask = Callable[[Tensor, Tensor], Tensor]


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
    return _call(q, k, v, positions, masks, score_mod)


def flex_kernel_with_logsumexp(
    q: Tensor, k: Tensor, v: Tensor, positions: Positions, masks: Masks, pair_mask: tuple[str, PairMask] | None
) -> tuple[Tensor, Tensor]:
    """Computes attention without a score_mod, and its logsumexp.

    Args:
        pair_mask: a name and a function that restricts attention to some pairs; the name is part of the key under
            which the block mask is cached for the pass.

    Returns:
        output (B, H, T, d), and the logsumexp of the logits (B, H, T), -inf where a query attends to no key.
    """
    return _call(q, k, v, positions, masks, None, pair_mask, logsumexp=True)


def _call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Positions,
    masks: Masks,
    score_mod: ScoreMod | None,
    pair_mask: tuple[str, PairMask] | None = None,
    logsumexp: bool = False,
) -> Any:
    if masks.attn_bias is not None:
        score_mod = chained(score_mod, dense_score_mod(masks.attn_bias))
    if not torch.is_grad_enabled():
        # On a CPU PyTorch refuses tensors that require a gradient even where none is computed.
        q, k, v = q.detach(), k.detach(), v.detach()
    compiled = _compiles(q.device.type, q.dtype, logsumexp)
    block_mask = _block_mask(q, k, positions, masks, pair_mask, compiled)
    if q.device.type != "cpu" or not compiled:
        attention = _compiled() if compiled else flex_attention
        # return_lse is deprecated for return_aux, which the oldest supported PyTorch does not have
        return attention(q, k, v, score_mod, block_mask, scale=1.0, **({"return_lse": True} if logsumexp else {}))
    if block_mask is None:
        block_mask = positions.cached("blocks of all pairs", lambda: flex_on_cpu.all_pairs(q.size(2), k.size(2)))
    flex_on_cpu.use_distinct_names()
    return _compiled()(q, k, v, score_mod, block_mask, scale=1.0)


def _compiles(device: str, dtype: torch.dtype, logsumexp: bool) -> bool:
    """Whether the kernel is compiled; says once if PyTorch cannot."""
    reason = flex_on_cpu.why_uncompiled(dtype, logsumexp) if COMPILED and device == "cpu" else None
    if reason is not None:
        flex_on_cpu.warn(reason)
    return COMPILED and device in ("cpu", "cuda") and reason is None


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


def _block_mask(
    q: Tensor,
    k: Tensor,
    positions: Positions,
    masks: Masks,
    pair_mask: tuple[str, PairMask] | None,
    compiled: bool,
) -> BlockMask | None:
    """FlexAttention's block mask, cached for the pass; None if every query attends to every key."""
    padding, forbidden = masks.key_padding_mask, masks.forbidden
    if padding is None and forbidden is None and pair_mask is None:
        return None
    first = positions.first
    is_forbidden = None if forbidden is None else broadcast_reader(forbidden)

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        seen = j >= 0
        if pair_mask is not None:
            seen = seen & pair_mask[1](i + first, j)
        if padding is not None:
            seen = seen & ~padding[b, j]
        if is_forbidden is not None:
            seen = seen & ~is_forbidden(b, h, i, j)
        return seen

    by_sentence = padding is not None or (forbidden is not None and forbidden.size(0) > 1)
    by_head = forbidden is not None and forbidden.size(1) > 1

    def make() -> BlockMask:
        make_mask: Any = _compiled_block_mask() if compiled else create_block_mask
        return make_mask(
            visible,
            q.size(0) if by_sentence else None,
            q.size(1) if by_head else None,
            q.size(2),
            k.size(2),
            device=q.device,
        )

    return positions.cached(("block mask", masks, pair_mask and pair_mask[0]), make)
