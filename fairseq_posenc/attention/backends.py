"""The backends, which compute the same attention in different ways: by PyTorch's fused kernel, by FlexAttention, with
all logits at once, or in blocks of queries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..encodings.base import PositionEncoding
from ..errors import FlagError
from . import flex_kernel
from .masks import Masks, four_dimensions
from .positions import Positions


@dataclass(frozen=True)
class AttentionInputs:
    """What a backend computes attention from.

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
        """The encoding's bias, and that of segments, of four dimensions; q is scaled."""
        bias = self.encoding.bias(q, self.k, self.positions)
        if self.encoding.segments is not None:
            of_segments = self.encoding.segments(self.positions).to(q.dtype)
            bias = of_segments if bias is None else bias + of_segments
        return None if bias is None else four_dimensions(bias)

    def logits(self, bias: Tensor | None = None) -> Tensor:
        """The logits before masks, (B, H, T, S); the bias is the encoding's unless given."""
        q = self.scaled_q
        bias = self.bias(q) if bias is None else bias
        logits = self.encoding.content(q, self.k, self.positions)
        if bias is not None:
            logits += bias  # in place: from some hundred tokens on attention is bound by memory
        return logits

    def part(self, start: int, stop: int, keys: int) -> AttentionInputs:
        """The inputs of the queries from ``start`` to ``stop`` and of the first ``keys`` keys."""
        return replace(
            self,
            q=self.q[:, :, start:stop],
            k=self.k[:, :, :keys],
            v=self.v[:, :, :keys],
            positions=self.positions.block(start, stop, keys),
            masks=self.masks.part(start, stop, keys),
        )


#: gives the output, (B, H, T, d)
Backend = Callable[[AttentionInputs], Tensor]


def sdpa(inputs: AttentionInputs) -> Tensor:
    """PyTorch's fused kernel."""
    k, v, encoding, mask = inputs.k, inputs.v, inputs.encoding, inputs.masks.additive
    if not encoding.adds_bias:
        # The kernel scales by itself: where an encoding leaves attention alone, bit for bit what stock fairseq does.
        return F.scaled_dot_product_attention(inputs.q, k, v, mask, inputs.dropout, scale=encoding.scaling)
    q = inputs.scaled_q
    bias = inputs.bias(q)
    if bias is not None:
        mask = bias if mask is None else bias + mask
    return F.scaled_dot_product_attention(q, k, v, mask, inputs.dropout, scale=1.0)


def eager(inputs: AttentionInputs) -> Tensor:
    """All logits at once, step by step as in the equation."""
    return with_weights(inputs)[0]


def with_weights(inputs: AttentionInputs, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Output (B, H, T, d), and the weights before dropout, (B, H, T, S); the bias is the encoding's unless inputs."""
    logits = inputs.logits(bias)
    if inputs.masks.additive is not None:
        logits += inputs.masks.additive
    weights = softmax(logits).to(inputs.v.dtype)
    dropped = F.dropout(weights, inputs.dropout) if inputs.dropout > 0 else weights
    output = dropped @ inputs.v
    extra = inputs.encoding.context(dropped, inputs.positions)
    return output if extra is None else output + extra, weights


def softmax(logits: Tensor) -> Tensor:
    """The weights, in single precision at least."""
    return torch.softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))


#: logits of one block: as many as stay in a processor's cache
BLOCK_LOGITS = 1 << 19


def blocks(inputs: AttentionInputs) -> Tensor:
    """Some queries at a time, recomputed in the backward pass: memory grows with the length, not with its square,
    unless the bias is computed as a whole (``bias_by_blocks``). Keys that no query of a block may see are left out.
    """
    batch, heads, queries, _ = inputs.q.shape
    keys = inputs.k.size(2)
    size = max(16, BLOCK_LOGITS // max(1, batch * heads * keys))
    if size >= queries:
        return eager(inputs)
    bias = None if inputs.encoding.bias_by_blocks else inputs.bias(inputs.scaled_q)

    def one(start: int, stop: int, seen: int) -> Tensor:
        rows = None if bias is None else _rows(bias, start, stop, seen)
        return with_weights(inputs.part(start, stop, seen), rows)[0]

    outputs = []
    for start in range(0, queries, size):
        stop = min(start + size, queries)
        last = inputs.masks.last_visible[start:stop]
        seen = max(inputs.positions.first + stop, *last) if last else keys  # at least up to the last query
        outputs.append(checkpoint(one, start, stop, seen, use_reentrant=False, preserve_rng_state=inputs.dropout > 0))
    return torch.cat(outputs, dim=2)


def _rows(bias: Tensor, start: int, stop: int, keys: int) -> Tensor:
    """The part of a bias (..., T or 1, S) for these queries and the first keys."""
    return bias[..., :keys] if bias.size(-2) == 1 else bias[..., start:stop, :keys]


def flex(inputs: AttentionInputs) -> Tensor:
    """PyTorch's FlexAttention, compiled on a GPU.

    Raises:
        ValueError: a gradient is needed on a CPU.
    """
    if (
        inputs.q.device.type == "cpu"
        and torch.is_grad_enabled()
        and inputs.q.requires_grad
        and not flex_kernel.TRAINS_ON_CPU
    ):
        raise FlagError("--attention-backend flex trains on a GPU only: leave it out or say auto.")
    return inputs.encoding.attend_with_flex(inputs.scaled_q, inputs.k, inputs.v, inputs.positions, inputs.masks)


def auto(inputs: AttentionInputs) -> Tensor:
    """The backend that was measured to be best (docs/performance.md): the fused kernel where it applies and is faster;
    else all logits at once, or blocks where sentences are long.
    """
    return choose(inputs)(inputs)


def choose(inputs: AttentionInputs) -> Backend:
    encoding, on_cpu = inputs.encoding, inputs.q.device.type == "cpu"
    fused = not encoding.needs_weights
    if on_cpu:
        # PyTorch has no fused kernel for a bias that learns, and that for one query takes two to four times as long.
        learns = torch.is_grad_enabled() and encoding.adds_bias and any(p.requires_grad for p in encoding.parameters())
        fused = fused and not learns and inputs.q.size(2) > 1
    if fused:
        return sdpa
    # On a GPU blocks were not measured: users who run out of memory there choose them, or flex.
    long = on_cpu and inputs.q.size(2) >= LONG
    return (
        blocks
        if long and not _why_not("blocks", encoding, inputs.dropout, inputs.positions.is_cross_attention)
        else eager
    )


#: length from which on all logits at once would dominate memory, and blocks are used
LONG = 384
BACKENDS: dict[str, Backend] = {"auto": auto, "sdpa": sdpa, "flex": flex, "eager": eager, "blocks": blocks}


def _why_not(backend: str, encoding: PositionEncoding, dropout: float, is_cross_attention: bool) -> str | None:
    """Why the backend cannot compute this attention, as part of a sentence; None if it can."""
    if backend == "sdpa" and encoding.needs_weights:
        return f"{encoding.name} needs the logits or the weights themselves, which no fused kernel gives"
    if backend == "blocks" and encoding.projects_length:
        return f"{encoding.name} mixes all keys into a few, and has no need of blocks"
    if backend == "flex" and encoding.overrides("content"):
        return f"{encoding.name} changes q k^T itself, and FlexAttention only what comes of it"
    if backend == "flex" and encoding.segments is not None and encoding.overrides("attend_with_flex"):
        return f"{encoding.name} has no form with segments for FlexAttention"
    if backend in ("blocks", "flex") and is_cross_attention:
        return "it is for self-attention"
    if backend == "flex" and dropout > 0:
        return "FlexAttention drops no weights (--attention-dropout must be 0)"
    return None


def check_backend(
    name: str, encoding: PositionEncoding, dropout: float = 0.0, is_cross_attention: bool = False
) -> None:
    """Refuses a backend that does not exist, or that cannot compute this attention.

    Raises:
        ValueError: one sentence that names both.
    """
    if name not in BACKENDS:
        raise FlagError(f"there is no attention backend {name!r}; there are {', '.join(BACKENDS)}.")
    reason = _why_not(name, encoding, dropout, is_cross_attention)
    if reason:
        raise FlagError(f"--attention-backend {name} cannot be used: {reason}; leave it out or say auto.")
