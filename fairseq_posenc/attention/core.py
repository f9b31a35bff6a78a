""":func:`attend`: scaled dot-product attention with a position encoding, without a model."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ..encodings.contract.base import PositionEncoding, Projections
from ..positions import Positions
from .backends import check_backend, compute
from .inputs import AttentionInputs


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    key_padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    need_weights: bool = False,
    dropout: float = 0.0,
    positions: Positions | None = None,
    backend: str = "auto",
    layer_input: Tensor | None = None,
    projections: Projections | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Scaled dot-product attention with a position encoding.

    Args:
        q: (B, H, T, d), projected, not yet scaled; query t has the position of key S - T + t.
        k, v: (B, H, S, d).
        encoding: the position encoding.
        key_padding_mask: (B, S), True = padding; by default that of the positions.
        attn_mask: broadcastable to (B, H, T, S); bool, True = may not attend, or float, added to the logits.
        need_weights: also return the weights; all logits are then computed at once, and ``backend`` is ignored.
        dropout: dropout probability of the attention weights.
        positions: by default made from the lengths and the padding mask. :class:`CrossPositions` stand for
            cross-attention: k and v are of the source, q is of the target. Their padding is masked.
        backend: one of BACKENDS; all compute the same result.
        layer_input: (B, S, H d), the input of the layer, for encodings that read it; by default k with its heads side
            by side, as if keys were not projected.
        projections: of the layer's input to queries and to keys, for encodings that use them.

    Returns:
        output (B, H, T, d), and the weights before dropout if ``need_weights``: (B, H, T, S), or
        (B, H, T, projection_length) for an encoding that projects the length.

    Raises:
        ValueError: the encoding was built for another number or width of heads; the positions do not match q, k and the
            padding mask; the encoding does not support cross-attention; the sequence is longer than the encoding's
            tables; an encoding that mixes all keys is given a mask; the layer's input is not that of the keys; or the
            backend cannot compute this attention.
    """
    if q.shape[1::2] != (encoding.num_heads, encoding.head_dim):
        raise ValueError(
            f"q has {q.size(1)} heads of width {q.size(3)}, the encoding was built for {encoding.num_heads} of width "
            f"{encoding.head_dim}: build it with num_heads and head_dim of q."
        )
    if positions is None:
        positions = Positions(q.size(-2), k.size(-2), key_padding_mask, q.device)
    elif positions.device is None:
        positions = replace(positions, device=q.device)
    check_positions(positions, q, k.size(2), key_padding_mask)
    if positions.is_cross_attention and not encoding.facts.supports_cross_attention:
        raise ValueError(
            f"{encoding.name} does not support cross-attention: give Positions instead of CrossPositions, or use "
            "another encoding."
        )
    replacement = encoding.facts.in_decoder
    if encoding.facts.projects_length and attn_mask is not None:
        raise ValueError(
            f"{encoding.name} mixes all keys, so attn_mask cannot hide any of them and it has no causal form"
            + (f": use {replacement} in a decoder." if replacement else ": leave attn_mask out.")
        )
    check_backend(backend, encoding, dropout, positions.is_cross_attention)
    if "read_layer" in encoding.hooks:
        by_key = k.transpose(1, 2).flatten(2)
        if layer_input is None:
            layer_input = by_key
        elif layer_input.shape != by_key.shape:
            raise ValueError(
                f"layer_input has the shape {tuple(layer_input.shape)}, but k has {k.size(2)} keys in {k.size(0)} "
                f"sentences and {k.size(1)} heads of width {k.size(3)}: give it the shape {tuple(by_key.shape)}."
            )
    inputs = AttentionInputs.from_projected(encoding, q, k, v, positions, attn_mask, dropout, layer_input, projections)
    return compute(inputs, backend, need_weights)


def check_positions(positions: Positions, q: Tensor, keys: int, key_padding_mask: Tensor | None = None) -> None:
    """Refuses positions that do not match the queries (B, H, T, d), the number of keys, or the padding mask.

    Raises:
        ValueError: they do not match.
    """
    if (positions.queries, positions.keys) != (q.size(2), keys):
        raise ValueError(
            f"positions were made for {positions.queries} queries and {positions.keys} keys, but q has {q.size(2)} "
            f"queries and k has {keys} keys: make new positions for each pass."
        )
    padding = positions.padding_mask
    if key_padding_mask is not None and (padding is None or not padding.equal(key_padding_mask.bool())):
        raise ValueError("key_padding_mask is not the padding mask of the positions: give the same mask to both.")
    if padding is not None and padding.size(0) not in (1, q.size(0)):
        raise ValueError(
            f"positions have the padding of {padding.size(0)} sentences, but q has {q.size(0)}: make new positions for "
            "each pass."
        )
