"""Ways to compute attention, which all give the same: a fused kernel, the equation as it stands, and that by blocks.

q, k and v have been through the encoding's ``transform``, and q is not yet scaled; ``mask`` is additive,
(B or 1, 1, T or 1, S) as :func:`fairseq_posenc.attention.merge_masks` makes it, or None. Each returns (B, H, T, d).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .encodings.base import PositionEncoding
from .positions import Positions

Backend = Callable[[Tensor, Tensor, Tensor, PositionEncoding, Positions, "Tensor | None", float], Tensor]


class BackendError(ValueError):
    """A backend cannot compute this encoding's attention."""


def full_bias(encoding: PositionEncoding, q: Tensor, k: Tensor, positions: Positions) -> Tensor | None:
    """What is added to the content logits, with the segments', of four dimensions; q is scaled."""
    bias = encoding.bias(q, k, positions)
    if encoding.segments is not None:
        of_segments = encoding.segments(positions).to(q.dtype)
        bias = of_segments if bias is None else bias + of_segments
    return None if bias is None else bias[(None,) * (4 - bias.dim())]


def sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    positions: Positions,
    mask: Tensor | None,
    dropout: float,
) -> Tensor:
    """PyTorch's fused kernel.

    Raises:
        BackendError: the encoding needs the logits or the weights.
    """
    if encoding.needs_weights:
        raise BackendError(
            f"{encoding.name} needs the logits or the weights of attention, which a fused kernel does not give."
        )
    if not encoding.adds_bias:
        # The kernel scales by itself: where an encoding leaves attention alone, bit for bit what stock fairseq does.
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=encoding.scaling)
    q = q * encoding.scaling
    bias = full_bias(encoding, q, k, positions)
    if bias is not None and mask is not None:
        mask = bias + mask
    return F.scaled_dot_product_attention(q, k, v, bias if mask is None else mask, dropout, scale=1.0)


def eager(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    positions: Positions,
    mask: Tensor | None,
    dropout: float,
) -> Tensor:
    """The equation as it stands, all logits at once."""
    q = q * encoding.scaling
    bias = full_bias(encoding, q, k, positions)
    return with_weights(q, k, v, encoding, positions, bias, mask, dropout)[0]


def with_weights(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    positions: Positions,
    bias: Tensor | None,
    mask: Tensor | None,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Output (B, H, T, d), and the weights before dropout, (B, H, T, S); q is scaled."""
    logits = encoding.content(q, k, positions)
    if encoding.overrides("content"):
        logits = logits.clone()  # its gradient may need what it returned
    for term in (bias, mask):
        if term is not None:
            logits += term  # in place: at some hundred tokens attention is bound by memory
    weights = torch.softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32)).to(v.dtype)
    dropped = F.dropout(weights, dropout) if dropout > 0 else weights
    output = dropped @ v
    extra = encoding.context(dropped, positions)
    return output if extra is None else output + extra, weights


#: logits of one block: as many as stay in a processor's cache
BLOCK_LOGITS = 1 << 19


def blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    positions: Positions,
    mask: Tensor | None,
    dropout: float,
) -> Tensor:
    """The equation for some queries at a time, computed again for the gradient, so that memory grows with the length
    and not with its square; keys that no query of a block may see are left out.

    Raises:
        BackendError: between source and target, or where the encoding makes keys of another number.
    """
    if positions.crossing or encoding.projects_length:
        raise BackendError(f"{encoding.name} cannot go through the queries by blocks here.")
    queries, keys = q.size(2), k.size(2)
    size = max(16, BLOCK_LOGITS // (q.size(0) * q.size(1) * keys))
    q = q * encoding.scaling
    bias = None if encoding.bias_by_blocks else full_bias(encoding, q, k, positions)

    def one(q: Tensor, k: Tensor, v: Tensor, start: int, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        part = positions.block(start, start + q.size(2), k.size(2))
        if encoding.bias_by_blocks:
            bias = full_bias(encoding, q, k, part)
        return with_weights(q, k, v, encoding, part, bias, mask, dropout)[0]

    ends = _last_visible(positions, mask, queries, keys)
    outputs = []
    for start in range(0, queries, size):
        stop = min(start + size, queries)
        seen = max(ends[start:stop]) if ends else keys
        outputs.append(
            checkpoint(
                one,
                q[:, :, start:stop],
                k[:, :, :seen],
                v[:, :, :seen],
                start,
                _rows(mask, start, stop, seen),
                _rows(bias, start, stop, seen),
                use_reentrant=False,
                preserve_rng_state=dropout > 0,
            )
        )
    return torch.cat(outputs, dim=2)


def _rows(x: Tensor | None, start: int, stop: int, keys: int) -> Tensor | None:
    """Of a mask or bias (..., T or 1, S) the part of these queries and the first keys."""
    if x is None:
        return None
    return x[..., :keys] if x.size(-2) == 1 else x[..., start:stop, :keys]


def _last_visible(positions: Positions, mask: Tensor | None, queries: int, keys: int) -> list[int]:
    """For each query the number of keys up to the last that it may see in any sentence; empty where it may see all."""
    if mask is None or mask.size(-2) == 1:
        return []

    def find() -> list[int]:
        visible = (mask.detach().amax(dim=(0, 1)) > torch.finfo(mask.dtype).min / 8).long()
        place = torch.arange(1, keys + 1, device=mask.device)
        return (visible * place).amax(dim=-1).clamp(min=1).tolist()

    return positions.cached(("last visible", id(mask)), find)


def auto(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    positions: Positions,
    mask: Tensor | None,
    dropout: float,
) -> Tensor:
    """The fastest by measurement (docs/performance.md): the fused kernel where there is one; else by blocks where the
    logits are many, and all at once where they are few."""
    return choose(q, k, encoding, positions)(q, k, v, encoding, positions, mask, dropout)


def choose(q: Tensor, k: Tensor, encoding: PositionEncoding, positions: Positions) -> Backend:
    if q.device.type == "cpu":
        # There is no fused kernel for a bias that needs a gradient, and for one query it takes two to four times as long.
        learns = torch.is_grad_enabled() and encoding.adds_bias and any(p.requires_grad for p in encoding.parameters())
        fused = not learns and q.size(2) > 1
    else:
        fused = True
    if fused and not encoding.needs_weights:
        return sdpa
    many = q.size(0) * q.size(1) * q.size(2) * k.size(2) > MANY_LOGITS
    return blocks if many and not positions.crossing and not encoding.projects_length else eager


#: from here on blocks are used
MANY_LOGITS = 1 << 22
BACKENDS: dict[str, Backend] = {"auto": auto, "sdpa": sdpa, "eager": eager, "blocks": blocks}
