"""Attention by PyTorch's FlexAttention, which makes a fused kernel of a function of one logit: memory grows with the
length, not with its square. https://pytorch.org/blog/flexattention/"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from .masks import Masks
from .positions import Positions

#: PyTorch's plain form, which runs where nothing is compiled, has gradients, but PyTorch refuses them
TRAINS_ON_CPU = False

#: of a logit, and the indices of sentence, head, query and key: the new logit
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
#: of the indices of query and key among all keys: whether they meet
Where = Callable[[Tensor, Tensor], Tensor]


def kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Positions,
    masks: Masks,
    score_mod: ScoreMod | None = None,
    where: tuple[str, Where] | None = None,
) -> tuple[Tensor, Tensor]:
    """Output (B, H, T, d) and logarithm of the summed exponentials (B, H, T), -inf where a query sees nothing.

    Args:
        q: (B, H, T, d), scaled.
        where: the pairs to which attention is restricted, with a name under which its mask is kept for the pass.
    """
    adds = masks.adds
    if adds is not None:
        score_mod = both(score_mod, dense_score_mod(adds))
    attention: Any = _compiled() if q.is_cuda else flex_attention
    output, logsumexp = attention(
        q,
        k,
        v,
        score_mod=score_mod,
        block_mask=_block_mask(q, k, positions, masks, where),
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
    """Adds a tensor broadcastable to (B, H, T, S), of four dimensions."""
    entry = entries(bias)
    return lambda score, b, h, i, j: score + entry(b, h, i, j)


def entries(x: Tensor) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Reads a tensor broadcastable to (B, H, T, S), of four dimensions, at sentence, head, query and key."""
    batch, heads, queries, keys = (size > 1 for size in x.shape)
    return lambda b, h, i, j: x[b * batch, h * heads, i * queries, j * keys]


def both(first: ScoreMod | None, second: ScoreMod) -> ScoreMod:
    """One after the other."""
    if first is None:
        return second
    return lambda score, b, h, i, j: second(first(score, b, h, i, j), b, h, i, j)


def _block_mask(
    q: Tensor, k: Tensor, positions: Positions, masks: Masks, where: tuple[str, Where] | None
) -> BlockMask | None:
    """Which blocks of queries and keys need no work; made once a pass."""
    padding, forbids = masks.key_padding_mask, masks.forbids
    if padding is None and forbids is None and where is None:
        return None
    first = positions.first
    forbidden = None if forbids is None else entries(forbids)

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        seen = j >= 0
        if where is not None:
            seen = seen & where[1](i + first, j)
        if padding is not None:
            seen = seen & ~padding[b, j]
        if forbidden is not None:
            seen = seen & ~forbidden(b, h, i, j)
        return seen

    by_sentence = padding is not None or (forbids is not None and forbids.size(0) > 1)
    by_head = forbids is not None and forbids.size(1) > 1

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

    return positions.cached(("block mask", id(masks), where and where[0]), make)
