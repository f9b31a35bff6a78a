"""Attention by PyTorch's FlexAttention, which makes a fused kernel of a function of one logit: memory grows with the
length, not with its square. https://pytorch.org/blog/flexattention/"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
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
    batch, heads, queries, keys = (size > 1 for size in bias.shape)
    return lambda score, b, h, i, j: score + bias[b * batch, h * heads, i * queries, j * keys]


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

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        seen = j >= 0
        if where is not None:
            seen = seen & where[1](i + first, j)
        if padding is not None:
            seen = seen & ~padding[b, j]
        if forbids is not None:
            batch, heads, queries, keys = (size > 1 for size in forbids.shape)
            seen = seen & ~forbids[b * batch, h * heads, i * queries, j * keys]
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


def clipped_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Positions,
    masks: Masks,
    clipping_distance: int,
    key_logits: Tensor | None,
    value_table: Tensor | None,
) -> Tensor:
    r"""Shaw's attention, output (B, H, T, d), in three parts that share one softmax.

    Keys at a distance of K or more to one side all have that side's last vector: on each side that is plain attention
    with one number added for each query, and one vector for all its weight. Only the 2K - 1 distances between are
    computed one by one, so that beside two masked flash attentions it takes O(n K d) time and O(n K) memory.

    .. math:: z_i = \sum_{p} \frac{e^{s_p}}{\sum_{p'} e^{s_{p'}}} z_{ip}, \quad
        s_p = \log \sum_{j \in p} e^{e_{ij}}

    Args:
        q: (B, H, T, d), scaled.
        key_logits: q_i a^K_c of each row, (B, H, T, 2K + 1), or None without relative keys.
        value_table: a^V (H or 1, 2K + 1, d), or None without relative values.
    """
    reach = clipping_distance
    sides: list[tuple[int, tuple[str, Where] | None]] = [(0, None)]  # K = 0: one row for every distance
    if reach > 0:
        sides = [
            (0, (f"left of {reach}", lambda i, j: j <= i - reach)),
            (2 * reach, (f"right of {reach}", lambda i, j: j >= i + reach)),
        ]
    outputs, sums = [], []
    for row, where in sides:
        output, logsumexp = kernel(q, k, v, positions, masks, where=where)
        if key_logits is not None:
            logsumexp = logsumexp + key_logits[..., row]
        if value_table is not None:
            output = output + value_table[:, row, None].to(output.dtype)
        outputs.append(output)
        sums.append(logsumexp.clamp(min=masks.forbidden_logit))
    if reach > 0:
        output, logsumexp = _band(q, k, v, positions, masks, reach, key_logits, value_table)
        outputs.append(output)
        sums.append(logsumexp)
    shares = torch.stack(sums).softmax(dim=0)[..., None].to(q.dtype)
    return sum((share * output for share, output in zip(shares, outputs, strict=True)), start=torch.zeros_like(q))


#: queries of one block of the band
BAND_BLOCK = 64


def _band(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Positions,
    masks: Masks,
    reach: int,
    key_logits: Tensor | None,
    value_table: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Attention at distances less than ``reach``: output (B, H, T, d), logsumexp (B, H, T). Blocks of queries meet
    windows of keys that overlap."""
    queries, side = q.size(2), reach - 1
    block = min(BAND_BLOCK, queries)
    number = -(-queries // block)
    width = block + 2 * side
    i = positions.first + torch.arange(number * block, device=q.device).view(number, block, 1)
    j = i[:, :1] - side + torch.arange(width, device=q.device)  # (number, 1, width)
    distance = j - i  # (number, block, width)
    exists = (distance.abs() <= side) & (j >= 0) & (j < k.size(2)) & (i < positions.first + queries)
    j = j.clamp(0, k.size(2) - 1)
    row = (i - positions.first).clamp(max=queries - 1)

    def windows(x: Tensor) -> Tensor:
        """(B, H, S, d) as (B, H, number, width, d)."""
        return x[:, :, j[:, 0]]

    blocks = F.pad(q, (0, 0, 0, number * block - queries)).unflatten(2, (number, block))
    logits = blocks @ windows(k).transpose(-2, -1)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    rows = (distance.clamp(-side, side) + reach).expand(*q.shape[:2], -1, -1, -1)
    if key_logits is not None:
        padded = F.pad(key_logits, (0, 0, 0, number * block - queries)).unflatten(2, (number, block))
        logits = logits + padded.gather(-1, rows)
    if masks.adds is not None:
        logits = logits + _at(masks.adds, row, j)
    if masks.forbids is not None:
        exists = exists & ~_at(masks.forbids, row, j)
    if masks.key_padding_mask is not None:
        exists = exists & ~masks.key_padding_mask[:, None][:, :, j]
    logits = logits.masked_fill(~exists, masks.forbidden_logit)
    weights = logits.softmax(-1).to(v.dtype)
    output = weights @ windows(v)
    if value_table is not None:
        by_distance = weights.new_zeros(*weights.shape[:4], value_table.size(1)).scatter_add(-1, rows, weights)
        output = output + (by_distance.flatten(2, 3) @ value_table.to(v.dtype)).unflatten(2, (number, block))
    return output.flatten(2, 3)[:, :, :queries], logits.logsumexp(-1).flatten(2)[:, :, :queries]


def _at(x: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Entries of x (B or 1, H or 1, T or 1, S) for queries i and keys j, (B or 1, H or 1, number, block, width)."""
    return x[:, :, i if x.size(2) > 1 else torch.zeros_like(i), j]
