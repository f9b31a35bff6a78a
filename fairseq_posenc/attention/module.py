"""Attention modules for fairseq's layers: projections and incremental decoding around :class:`.AttentionInputs`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor

from ..encodings.contract.base import PositionEncoding
from ..masks import Masks
from ..positions import CrossPositions, Positions
from .backends import check_backend, compute
from .core import check_positions
from .inputs import AttentionInputs
from .key_value_cache import reorder


@dataclass(frozen=True)
class StackPositions:
    """The positions of one forward pass of an encoder or decoder, in self- and cross-attention, and its padding."""

    own: Positions
    cross: CrossPositions | None = None


#: positions of this thread's current forward pass; fairseq's layers cannot pass extra arguments to their attention
_positions: ContextVar[StackPositions | None] = ContextVar("positions", default=None)

IncrementalState = dict[str, dict[str, Tensor | None]]


@contextmanager
def use_positions(positions: StackPositions | None) -> Iterator[None]:
    """Makes ``positions`` those of the current forward pass within the context."""
    token = _positions.set(positions)
    try:
        yield
    finally:
        _positions.reset(token)


def current_positions() -> StackPositions | None:
    """The positions of the current forward pass; None outside an encoder or decoder of this package."""
    return _positions.get()


def _required_positions() -> StackPositions:
    positions = current_positions()
    if positions is None:
        raise RuntimeError("attention with positions works only inside a forward pass of an encoder or decoder.")
    return positions


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(length, B, C) to (B, H, length, d)."""
    return x.view(*x.shape[:2], heads, -1).permute(1, 2, 0, 3)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, length, d) to (length, B, C)."""
    return x.permute(2, 0, 1, 3).flatten(2)


class PositionAttention(MultiheadAttention):
    """Self-attention of a fairseq layer with a position encoding.

    Parameters and incremental state keep the names of fairseq's :class:`MultiheadAttention`, so stock checkpoints load.
    The encoding's own parameters are under ``position_encoding``.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        encoding: PositionEncoding,
        dropout: float,
        backend: str = "auto",
        **other: Any,
    ) -> None:
        check_backend(backend, encoding, dropout)
        super().__init__(embed_dim, num_heads, dropout=dropout, **other)
        self.position_encoding = encoding
        self.backend = backend

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Computes attention as fairseq's module does.

        Args:
            query: (T, B, C), as is the output.
            key: (S, B, C) of the source in cross-attention, otherwise ignored. Values are projected from it too.
            key_padding_mask: ignored: the positions of the pass have the padding.

        Returns:
            output, and weights (B, T, S), or (H, B, T, S) with ``need_head_weights``.
        """
        assert not before_softmax, "fairseq never asks for the logits"
        dropout = self.dropout_module.p if self.training or self.dropout_module.apply_during_inference else 0.0
        inputs = self._inputs(query, key, attn_mask, dropout, incremental_state)
        backend = self.backend if incremental_state is None else "auto"
        output, weights = compute(inputs, backend, need_weights or need_head_weights)
        output = self.out_proj(merge_heads(output))
        if weights is None:
            return output, None
        return output, weights.transpose(0, 1) if need_head_weights else weights.mean(dim=1)

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> IncrementalState:
        """Reorders the cache with the beams; the copy is deferred to the next step."""
        saved = self._get_input_buffer(incremental_state)
        if saved:
            reorder(saved, new_order)
            self._set_input_buffer(incremental_state, saved)
        return incremental_state

    def _inputs(
        self,
        query: Tensor,
        key: Tensor | None,
        attn_mask: Tensor | None,
        dropout: float,
        incremental_state: IncrementalState | None,
    ) -> AttentionInputs:
        """Projects queries, keys and values; in incremental decoding, those of the new tokens, and caches the last two.

        The cache holds keys and values after the encoding's ``transform``, batch first as in fairseq, and what the
        encoding read from the layer's input.
        """
        # Queries are projected first, as in fairseq: autograd then sums gradients in the same order, bitwise equal.
        q, k, v = (split_heads(project(query), self.num_heads) for project in (self.q_proj, self.k_proj, self.v_proj))
        positions, projections = _required_positions().own, (self.q_proj, self.k_proj)
        saved = None if incremental_state is None else self._get_input_buffer(incremental_state)
        inputs = AttentionInputs.from_projected(
            self.position_encoding, q, k, v, positions, attn_mask, dropout, query.transpose(0, 1), projections, saved
        )
        if incremental_state is not None:
            check_positions(positions, q, inputs.k.size(2))  # the cache is of the decoder's prefix
            self._set_input_buffer(incremental_state, saved)
        return inputs


class PositionCrossAttention(PositionAttention):
    """Cross-attention of a fairseq layer with a position encoding."""

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> IncrementalState:
        """Reorders the cache at once, as fairseq does: no later step would copy the keys and values of the source."""
        return MultiheadAttention.reorder_incremental_state(self, incremental_state, new_order)

    def set_beam_size(self, beam_size: int) -> None:
        """Does nothing: fairseq would share one cached source among beams, but biases differ between beams."""

    def _inputs(
        self,
        query: Tensor,
        key: Tensor | None,
        attn_mask: Tensor | None,
        dropout: float,
        incremental_state: IncrementalState | None,
    ) -> AttentionInputs:
        """Projects queries, and keys and values of the source; in incremental decoding, the last two once.

        The cache holds them after the encoding's ``transform``, which later steps call without new keys.
        """
        positions = _required_positions().cross
        assert positions is not None, "the decoder has been given a source"
        assert key is not None, "fairseq passes the source in every step"
        q = split_heads(self.q_proj(query), self.num_heads)
        saved = {} if incremental_state is None else self._get_input_buffer(incremental_state)
        cached_k, cached_v = saved.get("prev_key"), saved.get("prev_value")
        if cached_k is None or cached_v is None:
            k, v = (split_heads(project(key), self.num_heads) for project in (self.k_proj, self.v_proj))
        else:
            k, v = cached_k[:, :, :0], cached_v[:, :, :0]  # no new keys
        inputs = AttentionInputs.from_projected(
            *(self.position_encoding, q, k, v, positions, attn_mask, dropout),
            layer_input=key.transpose(0, 1),
            projections=(self.q_proj, self.k_proj),
        )
        if cached_k is not None and cached_v is not None:
            return replace(inputs, k=cached_k, v=cached_v)
        if incremental_state is not None:
            self._set_input_buffer(incremental_state, {"prev_key": inputs.k, "prev_value": inputs.v})
        return inputs


class FusedCrossAttention(MultiheadAttention):
    """fairseq's cross-attention, without positions, that trains with PyTorch's fused kernel.

    fairseq computes all weights one by one. Both agree up to rounding. Whoever asks for the weights, evaluates or
    translates gets what fairseq computes, to the bit.
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = True,
        **others: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Computes attention as fairseq's module does: query and output are (T, B, C), key is (S, B, C)."""
        positions = current_positions()
        cross = None if positions is None else positions.cross
        if not self.training or incremental_state is not None or need_weights or cross is None:
            output: tuple[Tensor, Tensor | None] = super().forward(
                query, key, value, key_padding_mask, incremental_state, need_weights, **others
            )
            return output
        q = split_heads(self.q_proj(query), self.num_heads)
        k, v = (split_heads(project(key), self.num_heads) for project in (self.k_proj, self.v_proj))
        mask = Masks.cached(cross, None, q.dtype).additive
        attended = F.scaled_dot_product_attention(q, k, v, mask, self.dropout_module.p)
        return self.out_proj(merge_heads(attended)), None
