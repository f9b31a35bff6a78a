"""PyTorch's FlexAttention, https://pytorch.org/blog/flexattention/: it compiles a fused kernel from a function of one
logit, so that memory grows with the length, not with its square.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from .masks import Masks
from .positions import Positions

#: False since PyTorch refuses gradients on a CPU, though its uncompiled form has them; tests set it
TRAINS_ON_CPU = False

#: the new logit, of a logit and the indices of its sentence, head, query and key
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
#: whether a query attends to a key, of their indices among all keys
PairMask = Callable[[Tensor, Tensor], Tensor]


def flex_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Positions,
    masks: Masks,
    score_mod: ScoreMod | None = None,
    pair_mask: tuple[str, PairMask] | None = None,
) -> tuple[Tensor, Tensor]:
    """Output (B, H, T, d), and logsumexp of the logits (B, H, T), -inf where a query attends to nothing.

    Args:
        q: (B, H, T, d), scaled.
        score_mod: what is done to the logits before masks.
        pair_mask: restricts attention to some pairs; its name tells block masks apart in the cache of the pass.
    """
    if masks.attn_bias is not None:
        score_mod = chained(score_mod, dense_score_mod(masks.attn_bias))
    attention: Any = _compiled() if q.is_cuda else flex_attention
    output, logsumexp = attention(
        q,
        k,
        v,
        score_mod=score_mod,
        block_mask=_block_mask(q, k, positions, masks, pair_mask),
        scale=1.0,
        return_lse=True,  # its successor, return_aux, is younger than the oldest PyTorch that this package works with
    )
    return output, logsumexp


@cache
def _compiled_block_mask() -> Any:
    return torch.compile(create_block_mask)


@cache
def _compiled() -> Any:
    # Where it cannot be compiled, an error is better than PyTorch's plain form, which holds all logits.
    return torch.compile(flex_attention, dynamic=True, fullgraph=True)


def dense_score_mod(bias: Tensor) -> ScoreMod:
    """Adds a bias of four dimensions, broadcastable to (B, H, T, S)."""
    entry = reader(bias)
    return lambda score, b, h, i, j: score + entry(b, h, i, j)


def reader(x: Tensor) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """A function that reads x, of four dimensions, broadcastable to (B, H, T, S), at sentence, head, query and key."""
    batch, heads, queries, keys = (size > 1 for size in x.shape)
    return lambda b, h, i, j: x[b * batch, h * heads, i * queries, j * keys]


def chained(first: ScoreMod | None, second: ScoreMod) -> ScoreMod:
    """The first, then the second."""
    if first is None:
        return second
    return lambda score, b, h, i, j: second(first(score, b, h, i, j), b, h, i, j)


def _block_mask(
    q: Tensor, k: Tensor, positions: Positions, masks: Masks, pair_mask: tuple[str, PairMask] | None
) -> BlockMask | None:
    """Which blocks of queries and keys need no work, cached for the pass."""
    padding, forbidden = masks.key_padding_mask, masks.forbidden
    if padding is None and forbidden is None and pair_mask is None:
        return None
    first = positions.first
    is_forbidden = None if forbidden is None else reader(forbidden)

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
        make_mask: Any = _compiled_block_mask() if q.is_cuda else create_block_mask
        return make_mask(
            visible,
            q.size(0) if by_sentence else None,
            q.size(1) if by_head else None,
            q.size(2),
            k.size(2),
            device=q.device,
        )

    return positions.cached(("block mask", masks, pair_mask and pair_mask[0]), make)
