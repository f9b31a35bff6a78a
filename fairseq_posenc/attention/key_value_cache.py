"""Keys and values of the earlier steps of a generation, in the order of the beams."""

from __future__ import annotations

import torch
from torch import Tensor

#: what fairseq's incremental state holds for one attention
Saved = dict[str, Tensor | None]


def reorder(saved: Saved, order: Tensor) -> None:
    """Notes that row r continues row ``order[r]``. Nothing is copied yet: the next step copies the cache anyway, to
    append its own keys and values, and selects the rows then.
    """
    earlier = saved.get("order")
    saved["order"] = order if earlier is None else earlier.index_select(0, order)
    padding = saved.get("prev_key_padding_mask")
    if padding is not None:
        saved["prev_key_padding_mask"] = padding.index_select(0, order)


def append(saved: Saved, name: str, new: Tensor) -> Tensor:
    """The tensor cached as ``name``, (B', H, S, d), in the order of the beams, followed by ``new`` (B, H, T, d):
    (B, H, S + T, d).
    """
    cached, order = saved.get(name), saved.get("order")
    if cached is None:
        return new
    if order is None or new.requires_grad:
        return torch.cat([cached if order is None else cached.index_select(0, order), new], dim=2)
    batch, heads, length, width = new.shape
    joined = new.new_empty(batch, heads, cached.size(2) + length, width)
    torch.index_select(cached, 0, order, out=joined[:, :, : cached.size(2)])  # one copy instead of two
    joined[:, :, cached.size(2) :] = new
    return joined
