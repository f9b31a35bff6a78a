"""Masks of padding and of the future, converted once a pass to the forms that backends need."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from .positions import Positions


class Masks:
    """The masks of one pass.

    Args:
        key_padding_mask: (B, S), True = padding; None where nothing is padded.
        attn_mask: broadcastable to (B, H, T, S); bool, True = may not attend, or float, added to the logits.
        dtype: of the logits.
    """

    def __init__(self, key_padding_mask: Tensor | None, attn_mask: Tensor | None, dtype: torch.dtype) -> None:
        self._given = key_padding_mask  # alive as long as its place in memory identifies it, see of_pass
        self.key_padding_mask = None if key_padding_mask is None else key_padding_mask.bool()
        self.attn_mask = attn_mask
        self.dtype = dtype

    @classmethod
    def of_pass(
        cls, positions: Positions, key_padding_mask: Tensor | None, attn_mask: Tensor | None, dtype: torch.dtype
    ) -> Masks:
        """The same object for all layers that are given the same masks."""
        # fairseq makes a new view of the same mask for every layer.
        key = ("masks", _place(key_padding_mask), _place(attn_mask), dtype)
        return positions.cached(key, lambda: cls(key_padding_mask, attn_mask, dtype))

    def part(self, start: int, stop: int, keys: int) -> Masks:
        """The masks of the queries from ``start`` to ``stop`` and of the first ``keys`` keys."""
        mask = self.attn_mask
        if mask is not None and mask.dim() > 1 and mask.size(-2) > 1:
            mask = mask[..., start:stop, :]
        if mask is not None and mask.dim() > 0 and mask.size(-1) > 1:
            mask = mask[..., :keys]
        padding = self.key_padding_mask
        return Masks(None if padding is None else padding[:, :keys], mask, self.dtype)

    @property
    def forbidden_logit(self) -> float:
        """A large negative number, not -inf: the row of a padded query that may attend to nothing (a left-padded target
        under the causal mask) then stays finite, and so do its gradients.
        """
        return torch.finfo(self.dtype).min / 4

    @cached_property
    def forbidden(self) -> Tensor | None:
        """Where ``attn_mask`` forbids attention, of its shape in four dimensions, bool."""
        if self.attn_mask is None:
            return None
        mask = self.attn_mask
        if mask.is_floating_point():
            mask = mask <= self.forbidden_logit
        return four_dimensions(mask)

    @cached_property
    def attn_bias(self) -> Tensor | None:
        """What a float ``attn_mask`` adds where it does not forbid, in four dimensions; None if that is nothing."""
        if self.attn_mask is None or not self.attn_mask.is_floating_point():
            return None
        bias = self.attn_mask.to(self.dtype).masked_fill(self.attn_mask <= self.forbidden_logit, 0)
        return four_dimensions(bias) if bias.any() else None

    @cached_property
    def additive(self) -> Tensor | None:
        """All masks as one tensor to add to the logits, (B or 1, H or 1, T or 1, S); None if there is nothing to
        add.
        """
        mask = self.attn_mask
        merged = None
        if mask is not None and mask.is_floating_point():
            merged = mask.to(self.dtype).clamp(min=self.forbidden_logit)
            mask = None
        if self.key_padding_mask is not None:
            padding = self.key_padding_mask[:, None, None, :]
            mask = padding if mask is None else mask | padding
        if mask is not None:
            if merged is None:
                merged = torch.zeros((), dtype=self.dtype, device=mask.device)
            merged = merged.masked_fill(mask, self.forbidden_logit)
        return None if merged is None else four_dimensions(merged)

    @cached_property
    def last_visible(self) -> list[int]:
        """For each query the number of keys up to the last that ``attn_mask`` lets it see in any sentence and head;
        empty where it may see all.
        """
        if self.forbidden is None or 1 in self.forbidden.shape[-2:]:
            return []
        visible = ~self.forbidden.all(dim=0).all(dim=0)
        from_the_end = visible.flip(-1).to(torch.uint8).argmax(dim=-1)
        return (visible.size(-1) - from_the_end).tolist()


def _place(x: Tensor | None) -> tuple[object, ...] | None:
    """Equal for tensors that are views of the same numbers at the same place in memory."""
    return None if x is None else (x.data_ptr(), x.dtype, x.shape, x.stride())


def four_dimensions(x: Tensor) -> Tensor:
    """(T, S) or (H, T, S) as (1, H or 1, T, S), which the fused kernel wants."""
    return x[(None,) * (4 - x.dim())]
