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


def extend(saved: Saved, k: Tensor, v: Tensor, from_input: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Appends keys, values and what was read of new tokens to those cached; returns, and caches, those of all tokens.

    Args:
        k, v: (B, H, T, d), after the encoding's ``transform``.
        from_input: (B, H, T, m), what the encoding read from the layer's input; None if it reads nothing.
    """
    k, v = append(saved, "prev_key", k), append(saved, "prev_value", v)
    if from_input is not None:
        from_input = append(saved, "prev_from_input", from_input)
    saved.clear()
    saved.update({"prev_key": k, "prev_value": v, "prev_from_input": from_input})
    return k, v, from_input
