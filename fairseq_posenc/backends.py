"""Ways to compute attention, which all give the same: a fused kernel, a kernel made for the encoding, the equation as
it stands, and that by blocks of queries.

q, k and v have been through the encoding's ``transform``, and q is not yet scaled. Each returns (B, H, T, d).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .encodings.base import PositionEncoding
from .masks import Masks, four_dimensions
from .positions import Positions

Backend = Callable[[Tensor, Tensor, Tensor, PositionEncoding, Positions, Masks, float], Tensor]


def full_bias(encoding: PositionEncoding, q: Tensor, k: Tensor, positions: Positions) -> Tensor | None:
    """What is added to the content logits, with the segments', of four dimensions; q is scaled."""
    bias = encoding.bias(q, k, positions)
    if encoding.segments is not None:
        of_segments = encoding.segments(positions).to(q.dtype)
        bias = of_segments if bias is None else bias + of_segments
    return None if bias is None else four_dimensions(bias)


def sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    positions: Positions,
    masks: Masks,
    dropout: float,
) -> Tensor:
    """PyTorch's fused kernel."""
    if not encoding.adds_bias:
        # The kernel scales by itself: where an encoding leaves attention alone, bit for bit what stock fairseq does.
        return F.scaled_dot_product_attention(q, k, v, masks.additive, dropout, scale=encoding.scaling)
    q = q * encoding.scaling
    bias, mask = full_bias(encoding, q, k, positions), masks.additive
    if bias is not None and mask is not None:
        mask = bias + mask
    return F.scaled_dot_product_attention(q, k, v, bias if mask is None else mask, dropout, scale=1.0)


def eager(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    positions: Positions,
    masks: Masks,
    dropout: float,
) -> Tensor:
    """The equation as it stands, all logits at once."""
    q = q * encoding.scaling
    bias = full_bias(encoding, q, k, positions)
    return with_weights(q, k, v, encoding, positions, bias, masks, dropout)[0]


def with_weights(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    positions: Positions,
    bias: Tensor | None,
    masks: Masks,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Output (B, H, T, d), and the weights before dropout, (B, H, T, S); q is scaled."""
    logits = encoding.content(q, k, positions)
    if encoding.overrides("content"):
        logits = logits.clone()  # its gradient may need what it returned
    for term in (bias, masks.additive):
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
    masks: Masks,
    dropout: float,
) -> Tensor:
    """The equation for some queries at a time, computed again for the gradient, so that memory grows with the length
    and not with its square; keys that no query of a block may see are left out.
    """
    queries, keys = q.size(2), k.size(2)
    size = max(16, BLOCK_LOGITS // (q.size(0) * q.size(1) * keys))
    q = q * encoding.scaling
    bias = None if encoding.bias_by_blocks else full_bias(encoding, q, k, positions)
    mask = masks.additive

    def one(q: Tensor, k: Tensor, v: Tensor, start: int, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        part = positions.block(start, start + q.size(2), k.size(2))
        if encoding.bias_by_blocks:
            bias = full_bias(encoding, q, k, part)
        return with_weights(q, k, v, encoding, part, bias, Masks(None, mask, q.dtype), dropout)[0]

    outputs = []
    for start in range(0, queries, size):
        stop = min(start + size, queries)
        seen = max(masks.last_visible[start:stop], default=keys)
        outputs.append(
            checkpoint(
                one,
                q[:, :, start:stop],
                k[:, :, :seen],
                v[:, :, :seen],
                start,
                _part(mask, start, stop, seen),
                _part(bias, start, stop, seen),
                use_reentrant=False,
                preserve_rng_state=dropout > 0,
            )
        )
    return torch.cat(outputs, dim=2)


def _part(x: Tensor | None, start: int, stop: int, keys: int) -> Tensor | None:
    """Of a mask or bias (..., T or 1, S) the part of these queries and the first keys."""
    if x is None:
        return None
    return x[..., :keys] if x.size(-2) == 1 else x[..., start:stop, :keys]


def flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    positions: Positions,
    masks: Masks,
    dropout: float,
) -> Tensor:
    """PyTorch's FlexAttention, compiled on a GPU."""
    return encoding.flex(q * encoding.scaling, k, v, positions, masks)


def auto(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    positions: Positions,
    masks: Masks,
    dropout: float,
) -> Tensor:
    """What was measured to be best (docs/performance.md): the fused kernel where there is one and it is faster; else all
    logits at once, or by blocks where sentences are long."""
    return choose(q, k, encoding, positions)(q, k, v, encoding, positions, masks, dropout)


def choose(q: Tensor, k: Tensor, encoding: PositionEncoding, positions: Positions) -> Backend:
    fused = not encoding.needs_weights
    if q.device.type == "cpu":
        # PyTorch has no fused kernel for a bias that learns, and that for one query takes two to four times as long.
        learns = torch.is_grad_enabled() and encoding.adds_bias and any(p.requires_grad for p in encoding.parameters())
        fused = fused and not learns and q.size(2) > 1
    if fused:
        return sdpa
    return blocks if min(q.size(2), k.size(2)) >= LONG and not why_not_blocks(encoding, positions) else eager


#: tokens of a sentence from which on all logits at once would dominate memory, and blocks are used
LONG = 384
BACKENDS: dict[str, Backend] = {"auto": auto, "sdpa": sdpa, "flex": flex, "eager": eager, "blocks": blocks}


def why_not_sdpa(encoding: PositionEncoding, positions: Positions | None) -> str | None:
    if encoding.needs_weights:
        return f"{encoding.name} needs the logits or the weights themselves, which no fused kernel gives"
    return None


def why_not_blocks(encoding: PositionEncoding, positions: Positions | None) -> str | None:
    if encoding.projects_length:
        return f"{encoding.name} mixes all keys into a few, and has no need of blocks"
    if positions is not None and positions.crossing:
        return "it is for self-attention"
    return None


def why_not_flex(encoding: PositionEncoding, positions: Positions | None) -> str | None:
    if encoding.overrides("content"):
        return f"{encoding.name} changes q k^T itself, and FlexAttention only what comes of it"
    if encoding.segments is not None and encoding.needs_weights:
        return f"{encoding.name} has no form with segments for FlexAttention"
    if positions is not None and positions.crossing:
        return "it is for self-attention"
    return None


WHY_NOT = {"sdpa": why_not_sdpa, "blocks": why_not_blocks, "flex": why_not_flex}


def check_backend(
    name: str, encoding: PositionEncoding, dropout: float = 0.0, positions: Positions | None = None
) -> None:
    """Refuses a backend that there is not, or that cannot compute this attention.

    Raises:
        ValueError: one sentence that names both.
    """
    if name not in BACKENDS:
        raise ValueError(f"there is no attention backend {name!r}; there are {', '.join(BACKENDS)}.")
    reason = WHY_NOT[name](encoding, positions) if name in WHY_NOT else None
    if name == "flex" and dropout > 0:
        reason = "FlexAttention drops no weights (--attention-dropout must be 0)"
    if reason:
        raise ValueError(f"--attention-backend {name} cannot be used: {reason}; leave it out or say auto.")
