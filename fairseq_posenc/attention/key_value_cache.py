"""What a layer keeps over the steps of a generation: the keys and values so far, and the beams' new order."""

from __future__ import annotations

import torch
from torch import Tensor

#: of one attention in fairseq's incremental state
Saved = dict[str, Tensor | None]


def reorder(saved: Saved, order: Tensor) -> None:
    """Notes that row r goes on from row ``order[r]``. Nothing is copied: the next step has to copy what is kept anyway,
    to put its own keys behind, and picks the rows then."""
    earlier = saved.get("order")
    saved["order"] = order if earlier is None else earlier.index_select(0, order)
    padding = saved.get("prev_key_padding_mask")
    if padding is not None:
        saved["prev_key_padding_mask"] = padding.index_select(0, order)


def append(saved: Saved, name: str, new: Tensor) -> Tensor:
    """What is kept under ``name``, (B', H, S, d), in the order of the beams, and behind it ``new`` (B, H, T, d):
    (B, H, S + T, d)."""
    kept, order = saved.get(name), saved.get("order")
    if kept is None:
        return new
    if order is None or new.requires_grad:
        return torch.cat([kept if order is None else kept.index_select(0, order), new], dim=2)
    batch, heads, length, width = new.shape
    joined = new.new_empty(batch, heads, kept.size(2) + length, width)
    torch.index_select(kept, 0, order, out=joined[:, :, : kept.size(2)])  # one copy instead of two
    joined[:, :, kept.size(2) :] = new
    return joined
