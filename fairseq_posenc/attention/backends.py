"""Ways to compute attention, which all give the same: a fused kernel, a kernel made for the encoding, the equation as
it stands, and that by blocks of queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..encodings.base import PositionEncoding
from ..errors import FlagError
from . import flex_kernel as flex_module
from .masks import Masks, four_dimensions
from .positions import Positions


@dataclass(frozen=True)
class Attention:
    """What one attention is computed from.

    Args:
        q: (B, H, T, d), and k, v: (B, H, S, d), after the encoding's ``transform``; q is not yet scaled.
        dropout: probability with which weights are dropped.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    encoding: PositionEncoding
    positions: Positions
    masks: Masks
    dropout: float

    @property
    def scaled_q(self) -> Tensor:
        return self.q * self.encoding.scaling

    def bias(self, q: Tensor) -> Tensor | None:
        """What is added to the content logits, with the segments', of four dimensions; q is scaled."""
        bias = self.encoding.bias(q, self.k, self.positions)
        if self.encoding.segments is not None:
            of_segments = self.encoding.segments(self.positions).to(q.dtype)
            bias = of_segments if bias is None else bias + of_segments
        return None if bias is None else four_dimensions(bias)

    def part(self, start: int, stop: int, keys: int) -> Attention:
        """That of the queries from start to stop and of the first keys."""
        return replace(
            self,
            q=self.q[:, :, start:stop],
            k=self.k[:, :, :keys],
            v=self.v[:, :, :keys],
            positions=self.positions.block(start, stop, keys),
            masks=self.masks.part(start, stop, keys),
        )


#: gives the output, (B, H, T, d)
Backend = Callable[[Attention], Tensor]


def sdpa(given: Attention) -> Tensor:
    """PyTorch's fused kernel."""
    k, v, encoding, mask = given.k, given.v, given.encoding, given.masks.additive
    if not encoding.adds_bias:
        # The kernel scales by itself: where an encoding leaves attention alone, bit for bit what stock fairseq does.
        return F.scaled_dot_product_attention(given.q, k, v, mask, given.dropout, scale=encoding.scaling)
    q = given.scaled_q
    bias = given.bias(q)
    if bias is not None:
        mask = bias if mask is None else bias + mask
    return F.scaled_dot_product_attention(q, k, v, mask, given.dropout, scale=1.0)


def eager(given: Attention) -> Tensor:
    """The equation as it stands, all logits at once."""
    return with_weights(given)[0]


def with_weights(given: Attention, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Output (B, H, T, d), and the weights before dropout, (B, H, T, S); the bias is the encoding's unless given."""
    q = given.scaled_q
    bias = given.bias(q) if bias is None else bias
    logits = given.encoding.content(q, given.k, given.positions)
    for term in (bias, given.masks.additive):
        if term is not None:
            logits += term  # in place: from some hundred tokens on attention is bound by memory
    weights = torch.softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32)).to(given.v.dtype)
    dropped = F.dropout(weights, given.dropout) if given.dropout > 0 else weights
    output = dropped @ given.v
    extra = given.encoding.context(dropped, given.positions)
    return output if extra is None else output + extra, weights


#: logits of one block: as many as stay in a processor's cache
BLOCK_LOGITS = 1 << 19


def blocks(given: Attention) -> Tensor:
    """The equation for some queries at a time, computed again for the gradient, so that beside a bias that is made as
    a whole (``bias_by_blocks``) memory grows with the length and not with its square. Keys that no query of a block may
    see are left out."""
    batch, heads, queries, _ = given.q.shape
    keys = given.k.size(2)
    size = max(16, BLOCK_LOGITS // max(1, batch * heads * keys))
    if size >= queries:
        return eager(given)
    bias = None if given.encoding.bias_by_blocks else given.bias(given.scaled_q)

    def one(start: int, stop: int, seen: int) -> Tensor:
        rows = None if bias is None else _rows(bias, start, stop, seen)
        return with_weights(given.part(start, stop, seen), rows)[0]

    outputs = []
    for start in range(0, queries, size):
        stop = min(start + size, queries)
        last = given.masks.last_visible[start:stop]
        seen = max(given.positions.first + stop, *last) if last else keys  # at least up to the last query
        outputs.append(checkpoint(one, start, stop, seen, use_reentrant=False, preserve_rng_state=given.dropout > 0))
    return torch.cat(outputs, dim=2)


def _rows(bias: Tensor, start: int, stop: int, keys: int) -> Tensor:
    """Of a bias (..., T or 1, S) the part of these queries and the first keys."""
    return bias[..., :keys] if bias.size(-2) == 1 else bias[..., start:stop, :keys]


def flex(given: Attention) -> Tensor:
    """PyTorch's FlexAttention, compiled on a GPU.

    Raises:
        ValueError: a gradient is needed on a CPU.
    """
    if (
        given.q.device.type == "cpu"
        and torch.is_grad_enabled()
        and given.q.requires_grad
        and not flex_module.TRAINS_ON_CPU
    ):
        raise FlagError("--attention-backend flex trains on a GPU only: leave it out or say auto.")
    return given.encoding.flex(given.scaled_q, given.k, given.v, given.positions, given.masks)


def auto(given: Attention) -> Tensor:
    """What was measured to be best (docs/performance.md): the fused kernel where there is one and it is faster; else
    all logits at once, or by blocks where sentences are long."""
    return choose(given)(given)


def choose(given: Attention) -> Backend:
    encoding, on_cpu = given.encoding, given.q.device.type == "cpu"
    fused = not encoding.needs_weights
    if on_cpu:
        # PyTorch has no fused kernel for a bias that learns, and that for one query takes two to four times as long.
        learns = torch.is_grad_enabled() and encoding.adds_bias and any(p.requires_grad for p in encoding.parameters())
        fused = fused and not learns and given.q.size(2) > 1
    if fused:
        return sdpa
    # On a GPU blocks were not measured: who runs out of memory there asks for them, or for flex.
    long = on_cpu and given.q.size(2) >= LONG
    return blocks if long and not why_not_blocks(encoding, given.dropout, given.positions.crossing) else eager


#: tokens of a sentence from which on all logits at once would dominate memory, and blocks are used
LONG = 384
BACKENDS: dict[str, Backend] = {"auto": auto, "sdpa": sdpa, "flex": flex, "eager": eager, "blocks": blocks}


def why_not_sdpa(encoding: PositionEncoding, dropout: float, crossing: bool) -> str | None:
    if encoding.needs_weights:
        return f"{encoding.name} needs the logits or the weights themselves, which no fused kernel gives"
    return None


def why_not_blocks(encoding: PositionEncoding, dropout: float, crossing: bool) -> str | None:
    if encoding.projects_length:
        return f"{encoding.name} mixes all keys into a few, and has no need of blocks"
    if crossing:
        return "it is for self-attention"
    return None


def why_not_flex(encoding: PositionEncoding, dropout: float, crossing: bool) -> str | None:
    if encoding.overrides("content"):
        return f"{encoding.name} changes q k^T itself, and FlexAttention only what comes of it"
    if encoding.segments is not None and encoding.overrides("flex"):
        return f"{encoding.name} has no form with segments for FlexAttention"
    if crossing:
        return "it is for self-attention"
    if dropout > 0:
        return "FlexAttention drops no weights (--attention-dropout must be 0)"
    return None


WHY_NOT = {"sdpa": why_not_sdpa, "blocks": why_not_blocks, "flex": why_not_flex}


def check_backend(name: str, encoding: PositionEncoding, dropout: float = 0.0, crossing: bool = False) -> None:
    """Refuses a backend that there is not, or that cannot compute this attention.

    Raises:
        ValueError: one sentence that names both.
    """
    if name not in BACKENDS:
        raise FlagError(f"there is no attention backend {name!r}; there are {', '.join(BACKENDS)}.")
    reason = WHY_NOT[name](encoding, dropout, crossing) if name in WHY_NOT else None
    if reason:
        raise FlagError(f"--attention-backend {name} cannot be used: {reason}; leave it out or say auto.")
