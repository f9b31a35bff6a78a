"""Cached keys and values in incremental decoding, and their reordering with the beams."""

from __future__ import annotations

import torch
from torch import Tensor

#: the part of fairseq's incremental state that belongs to one attention module
Saved = dict[str, Tensor | None]


def reorder(saved: Saved, order: Tensor) -> None:
    """Records that row r of the next step continues cached row ``order[r]``.

    The rows are selected in the next step, which copies the cache anyway to append its own keys and values.
    """
    earlier = saved.get("order")
    saved["order"] = order if earlier is None else earlier.index_select(0, order)
    padding = saved.get("prev_key_padding_mask")
    if padding is not None:
        saved["prev_key_padding_mask"] = padding.index_select(0, order)


def append(saved: Saved, name: str, new: Tensor) -> Tensor:
    """Appends to a cached tensor, after reordering its rows.

    Args:
        name: the name of the cached tensor (B', H, S, d); it may be missing.
        new: (B, H, T, d).

    Returns:
        (B, H, S + T, d).
    """
    cached, order = saved.get(name), saved.get("order")
    if cached is None:
        return new
    if order is None or new.requires_grad:
        return torch.cat([cached if order is None else cached.index_select(0, order), new], dim=2)
    batch, heads, length, width = new.shape
    joined = new.new_empty(batch, heads, cached.size(2) + length, width)
    torch.index_select(cached, 0, order, out=joined.narrow(2, 0, cached.size(2)))  # one copy instead of two
    joined.narrow(2, cached.size(2), length).copy_(new)
    return joined
