"""Clipped relative vectors with FlexAttention: two kernels for the clipped distances, and a band between them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ...kernels.flex import PairMask, flex_kernel_with_logsumexp
from ...masks import Masks
from ...positions import Positions
from .tables import take_distances, weighted_sum


def flex_clipped_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Positions,
    masks: Masks,
    clipping_distance: int,
    key_logits: Tensor | None,
    value_table: Tensor,
) -> Tensor:
    r"""Shaw's attention in three parts p: keys clipped on the left, keys clipped on the right, and the band between.

    All keys at a distance of K or more on one side share that side's last vector. Each side is therefore plain
    attention plus one logit for each query and one value vector. The 2K - 1 distances of the band are computed
    explicitly, in O(n K d) time and O(n K) memory in addition to the two calls of FlexAttention. The outputs z_ip of
    the parts are combined into one softmax by their logsumexp s_p:

    .. math:: z_i = \sum_{p} \frac{e^{s_p}}{\sum_{p'} e^{s_{p'}}} z_{ip}, \quad
        s_p = \log \sum_{j \in p} e^{e_{ij}}

    Args:
        q: (B, H, T, d), scaled.
        k, v: (B, H, S, d).
        clipping_distance: K.
        key_logits: q_i a^K_c for each row c of the table, (B, H, T, 2K + 1), or None without relative keys.
        value_table: a^V (H or 1, 2K + 1, d).

    Returns:
        output (B, H, T, d).
    """
    reach = clipping_distance
    # Each side: its row of the table, and its mask with a name. With K = 0 all distances share one row.
    sides: list[tuple[int, tuple[str, PairMask] | None]] = [(0, None)]
    if reach > 0:
        sides = [
            (0, (f"left of {reach}", lambda i, j: j <= i - reach)),
            (2 * reach, (f"right of {reach}", lambda i, j: j >= i + reach)),
        ]
    outputs, sums = [], []
    for row, pair_mask in sides:
        output, logsumexp = flex_kernel_with_logsumexp(q, k, v, positions, masks, pair_mask)
        if key_logits is not None:
            logsumexp = logsumexp + key_logits[..., row]
        outputs.append(output + value_table[:, row, None].to(output.dtype))
        sums.append(logsumexp.clamp(min=masks.forbidden_logit))
    if reach > 0:
        output, logsumexp = _band(q, k, v, positions, masks, reach, key_logits, value_table)
        outputs.append(output)
        sums.append(logsumexp)
    shares = torch.stack(sums).softmax(dim=0)[..., None].to(q.dtype)
    return sum((share * output for share, output in zip(shares, outputs, strict=True)), start=torch.zeros_like(q))


#: number of queries in one block of the band
BAND_BLOCK = 64


def _band(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Positions,
    masks: Masks,
    reach: int,
    key_logits: Tensor | None,
    value_table: Tensor,
) -> tuple[Tensor, Tensor]:
    """Attention at distances less than ``reach``. Each block of queries attends to a window of keys; windows overlap.

    Returns:
        output (B, H, T, d), and logsumexp of the logits (B, H, T).
    """
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
        """(B, H, S, d) to (B, H, number, width, d)."""
        return x[:, :, j[:, 0]]

    blocks = F.pad(q, (0, 0, 0, number * block - queries)).unflatten(2, (number, block))
    logits = blocks @ windows(k).transpose(-2, -1)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    rows = (distance.clamp(-side, side) + reach).flatten(0, 1)  # (number * block, width)
    if key_logits is not None:
        padded = F.pad(key_logits, (0, 0, 0, number * block - queries))
        logits = logits + take_distances(padded, rows).unflatten(2, (number, block))
    if masks.attn_bias is not None:
        logits = logits + _gather_pairs(masks.attn_bias, row, j)
    if masks.forbidden is not None:
        exists = exists & ~_gather_pairs(masks.forbidden, row, j)
    if masks.key_padding_mask is not None:
        exists = exists & ~masks.key_padding_mask[:, None][:, :, j]
    logits = logits.masked_fill(~exists, masks.forbidden_logit)
    weights = logits.softmax(-1).to(v.dtype)
    output = (weights @ windows(v)).flatten(2, 3) + weighted_sum(weights.flatten(2, 3), value_table, rows)
    return output[:, :, :queries], logits.logsumexp(-1).flatten(2)[:, :, :queries]


def _gather_pairs(x: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Indexes x (B or 1, H or 1, T or 1, S) by queries i and keys j: (B or 1, H or 1, number, block, width)."""
    return x[:, :, i if x.size(2) > 1 else torch.zeros_like(i), j]
