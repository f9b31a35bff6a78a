"""The one function that all attention of this package goes through: :func:`attend`."""

from __future__ import annotations

from torch import Tensor

from ..encodings.base import PositionEncoding
from .backends import BACKENDS, AttentionInputs, check_backend, with_weights
from .masks import Masks
from .positions import Positions


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
) -> tuple[Tensor, Tensor | None]:
    """Scaled dot-product attention with a position encoding.

    Args:
        q: (B, H, T, d), projected, not yet scaled; its T queries are the last T of the S keys.
        k, v: (B, H, S, d).
        encoding: how positions act.
        key_padding_mask: (B, S), True = padding.
        attn_mask: broadcastable to (B, H, T, S); bool, True = may not attend, or float, added to the logits.
        need_weights: also return the weights, for which all logits are computed at once, whatever the backend.
        dropout: probability with which weights are dropped.
        positions: by default made from the lengths and the padding mask. With :class:`CrossPositions` k and v are of
            the source, and q of the target.
        backend: how it is computed, one of BACKENDS; all give the same result.

    Returns:
        output (B, H, T, d) and, if asked for, the weights before dropout, (B, H, T, S), or (B, H, T, number of
        mixtures) of an encoding that projects the length.

    Raises:
        ValueError: the encoding was built for other heads; the positions are of other lengths, without the padding, or
            between source and target where the encoding is not defined; the sequence is longer than the encoding's
            tables; a mask is given to an encoding that mixes all keys; or the backend cannot compute it.
    """
    if q.shape[1::2] != (encoding.num_heads, encoding.head_dim):
        raise ValueError(
            f"q has {q.size(1)} heads of {q.size(3)}, the encoding was built for {encoding.num_heads} of "
            f"{encoding.head_dim}: build it with num_heads and head_dim of q."
        )
    if positions is None:
        positions = Positions(q.size(-2), k.size(-2), key_padding_mask, q.device)
    check_positions(positions, q, k.size(2), key_padding_mask)
    if positions.is_cross_attention and not encoding.supports_cross_attention:
        raise ValueError(
            f"{encoding.name} is not defined between source and target: use Positions, or another encoding."
        )
    if encoding.projects_length and attn_mask is not None:
        raise ValueError(
            f"{encoding.name} mixes all keys, so that no mask can hide some of them: it has no causal form"
            + (f"; use {encoding.in_decoder} in a decoder." if encoding.in_decoder else ".")
        )
    check_backend(backend, encoding, dropout, positions.is_cross_attention)
    q, k, v = encoding.transform(q, k, v, positions)
    return attend_transformed(q, k, v, encoding, key_padding_mask, attn_mask, need_weights, dropout, positions, backend)


def attend_transformed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    need_weights: bool,
    dropout: float,
    positions: Positions,
    backend: str,
) -> tuple[Tensor, Tensor | None]:
    """:func:`attend` after the encoding's ``transform``."""
    if encoding.projects_length:
        key_padding_mask = None  # mixtures of keys, without their padding
    masks = Masks.of_pass(positions, key_padding_mask, attn_mask, q.dtype)
    inputs = AttentionInputs(q, k, v, encoding, positions, masks, dropout)
    if need_weights:
        return with_weights(inputs)
    return BACKENDS[backend](inputs), None


def check_positions(positions: Positions, q: Tensor, keys: int, key_padding_mask: Tensor | None) -> None:
    """Refuses positions of other queries and keys, and sets their device if it is not known."""
    if (positions.queries, positions.keys) != (q.size(2), keys):
        raise ValueError(
            f"the positions are of {positions.queries} queries and {positions.keys} keys, but q has {q.size(2)} and k "
            f"{keys}: make them for this pass."
        )
    if key_padding_mask is not None and positions.padding_mask is None:
        raise ValueError("the positions do not know of the padding: give the padding mask to them too.")
    if positions.device is None:
        positions.device = q.device
