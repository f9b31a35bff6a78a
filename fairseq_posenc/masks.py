"""Padding and causal masks, converted once per pass to the forms that backends need.

The way of the padding: the stack keeps which tokens are padding in the pass's ``Positions`` (layers.py), attention
finds these positions by ``current_positions`` (attention/module.py; fairseq's ``key_padding_mask`` is ignored), and
``AttentionInputs`` makes the masks of them. A fused backend gets bias plus masks (``masked_bias``); the eager one adds
the bias to the logits, then the masks (``applied_to``).
"""

from __future__ import annotations

import functools
from functools import cached_property

import torch
from torch import Tensor

from .positions import Positions


class Masks:
    """The masks of one pass.

    Args:
        key_padding_mask: (B, S), bool, True = padding; None where nothing is padded.
        attn_mask: broadcastable to (B, H, T, S); bool, True = may not attend, or float, added to the logits.
        dtype: of the logits.
    """

    def __init__(self, key_padding_mask: Tensor | None, attn_mask: Tensor | None, dtype: torch.dtype) -> None:
        self.key_padding_mask = key_padding_mask
        self.attn_mask = attn_mask  # keeps its memory allocated: ``cached`` identifies the mask by its address
        self.dtype = dtype

    @classmethod
    def cached(
        cls, positions: Positions, attn_mask: Tensor | None, dtype: torch.dtype, hides_padding: bool = True
    ) -> Masks:
        """The masks, cached for the pass: one object for all layers with the same masks.

        Args:
            hides_padding: whether to hide the padding that ``positions`` have.
        """
        # The key is not the tensor: fairseq makes a new view of the same mask for every layer.
        key = ("masks", hides_padding, _memory_key(attn_mask), dtype)
        padding = positions.padding_mask if hides_padding and positions.has_padding else None
        return positions.cache.get(key, lambda: cls(padding, attn_mask, dtype))

    def block(self, start: int, stop: int, keys: int) -> Masks:
        """The masks of queries ``start`` to ``stop - 1`` and the first ``keys`` keys."""
        mask = self.attn_mask
        if mask is not None and mask.dim() > 1 and mask.size(-2) > 1:
            mask = mask[..., start:stop, :]
        if mask is not None and mask.dim() > 0 and mask.size(-1) > 1:
            mask = mask[..., :keys]
        padding = self.key_padding_mask
        return Masks(None if padding is None else padding[:, :keys], mask, self.dtype)

    @property
    def forbidden_logit(self) -> float:
        """The logit from which on a float mask forbids a pair, and that of all pairs of a query that sees no key.

        Padding sees none in a left-padded target under the causal mask. With -inf its weights and gradients would be
        NaN.
        """
        return torch.finfo(self.dtype).min / 4

    @cached_property
    def forbidden(self) -> Tensor | None:
        """The pairs that ``attn_mask`` masks, bool, broadcastable to (B, H, T, S); None without an ``attn_mask``."""
        if self.attn_mask is None:
            return None
        mask = self.attn_mask
        if mask.is_floating_point():
            mask = mask <= self.forbidden_logit
        return four_dimensions(mask)

    @cached_property
    def attn_bias(self) -> Tensor | None:
        """The finite part of a float ``attn_mask``, broadcastable to (B, H, T, S); None if it is zero everywhere."""
        if self.attn_mask is None or not self.attn_mask.is_floating_point():
            return None
        bias = self.attn_mask.to(self.dtype).masked_fill(self.attn_mask <= self.forbidden_logit, 0)
        return four_dimensions(bias) if bias.any() else None

    @cached_property
    def additive(self) -> Tensor | None:
        """All masks as one tensor to add to the logits, (B or 1, H or 1, T or 1, S); None if nothing is masked.

        A masked pair gets -inf, which no bias can outweigh, or :attr:`forbidden_logit` where its query attends to
        nothing.
        """
        # Sums, maxima and thresholds of numbers are several times faster on a CPU than operations on bool.
        masks = [] if self.attn_mask is None else [self._as_numbers(four_dimensions(self.attn_mask))]
        if self.key_padding_mask is not None:
            masks.append(self._as_numbers(self.key_padding_mask[:, None, None, :]))
        if not masks:
            return None
        merged = functools.reduce(torch.add, masks)
        most = merged.amax(-1, keepdim=True)
        return merged.maximum(torch.full_like(most, -torch.inf).masked_fill(most == -torch.inf, self.forbidden_logit))

    def _as_numbers(self, mask: Tensor) -> Tensor:
        """A mask to add to the logits, with -inf where it forbids a pair."""
        if mask.is_floating_point():
            return torch.threshold(mask.to(self.dtype), self.forbidden_logit, -torch.inf)
        return torch.zeros(mask.shape, dtype=self.dtype, device=mask.device).masked_fill(mask, -torch.inf)

    def applied_to(self, logits: Tensor) -> Tensor:
        """The masked logits, computed in place."""
        if self.additive is not None:
            if logits.dtype == torch.float16:
                with torch.no_grad():  # a hidden logit may overflow, and inf - inf is NaN
                    logits.clamp_(max=torch.finfo(logits.dtype).max)
            logits += self.additive
        return logits

    @cached_property
    def last_visible(self) -> list[int]:
        """For each query, 1 + the index of the last key that ``attn_mask`` leaves visible in any sentence or head.

        Empty without an ``attn_mask``, or if it is broadcast over queries or keys.
        """
        if self.forbidden is None or 1 in self.forbidden.shape[-2:]:
            return []
        visible = ~self.forbidden.all(dim=0).all(dim=0)
        from_the_end = visible.flip(-1).to(torch.uint8).argmax(dim=-1)
        return (visible.size(-1) - from_the_end).tolist()


def _memory_key(x: Tensor | None) -> tuple[object, ...] | None:
    """A key that is equal for two views of the same memory with the same shape."""
    return None if x is None else (x.data_ptr(), x.dtype, x.shape, x.stride())


def four_dimensions(x: Tensor) -> Tensor:
    """Adds leading dimensions of size 1, as the fused kernel requires: (T, S) or (H, T, S) to (1, H or 1, T, S)."""
    return x[(None,) * (4 - x.dim())]
