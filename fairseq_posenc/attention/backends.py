"""The attention backends: PyTorch's fused kernel, FlexAttention, all logits at once, or blocks of queries.

They compute the same result and differ in time and memory.
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
    """The arguments of a backend.

    Args:
        q: (B, H, T, d), after the encoding's ``transform``, not yet scaled.
        k, v: (B, H, S, d), after the encoding's ``transform``.
        dropout: dropout probability of the attention weights.
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
        """The bias of the encoding plus that of segments, broadcastable to (B, H, T, S); q is scaled."""
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

    def block(self, start: int, stop: int, keys: int) -> AttentionInputs:
        """The inputs for queries ``start`` to ``stop - 1`` and the first ``keys`` keys."""
        return replace(
            self,
            q=self.q[:, :, start:stop],
            k=self.k[:, :, :keys],
            v=self.v[:, :, :keys],
            positions=self.positions.block(start, stop, keys),
            masks=self.masks.block(start, stop, keys),
        )


#: returns the output, (B, H, T, d)
Backend = Callable[[AttentionInputs], Tensor]


def sdpa(inputs: AttentionInputs) -> Tensor:
    """PyTorch's fused kernel."""
    k, v, encoding, mask = inputs.k, inputs.v, inputs.encoding, inputs.masks.additive
    if not encoding.adds_bias:
        # Let the kernel scale q: without a bias the result is then bitwise equal to stock fairseq's.
        return F.scaled_dot_product_attention(inputs.q, k, v, mask, inputs.dropout, scale=encoding.scaling)
    q = inputs.scaled_q
    bias = inputs.bias(q)
    if bias is not None:
        mask = bias if mask is None else bias + mask
    return F.scaled_dot_product_attention(q, k, v, mask, inputs.dropout, scale=1.0)


def eager(inputs: AttentionInputs) -> Tensor:
    """Computes all logits at once, following the equation."""
    return with_weights(inputs)[0]


def with_weights(inputs: AttentionInputs, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Computes attention with explicit weights.

    Args:
        bias: replaces ``inputs.bias``, for a caller that has computed it already.

    Returns:
        output (B, H, T, d), and the weights before dropout, (B, H, T, S).
    """
    logits = inputs.logits(bias)
    if inputs.masks.additive is not None:
        logits += inputs.masks.additive
    weights = attention_weights(logits, inputs.encoding, inputs.positions).to(inputs.v.dtype)
    dropped = F.dropout(weights, inputs.dropout) if inputs.dropout > 0 else weights
    output = dropped @ inputs.v
    extra = inputs.encoding.context(dropped, inputs.positions)
    return output if extra is None else output + extra, weights


def attention_weights(logits: Tensor, encoding: PositionEncoding, positions: Positions) -> Tensor:
    """The weights of masked logits before dropout, in single precision at least."""
    weights = torch.softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    factors = encoding.factors(positions)
    return weights if factors is None else weights * factors.to(weights.dtype)


#: maximum number of logits in one block, so that a block fits in a CPU's cache
BLOCK_LOGITS = 1 << 19


def blocks(inputs: AttentionInputs) -> Tensor:
    """Computes attention in blocks of queries and recomputes each block in the backward pass.

    Memory is linear in the length, unless the encoding computes its bias for all queries at once (``bias_by_blocks``
    is false). A block skips keys that the mask hides from all of its queries.
    """
    batch, heads, queries, _ = inputs.q.shape
    keys = inputs.k.size(2)
    size = max(16, BLOCK_LOGITS // max(1, batch * heads * keys))
    if size >= queries:
        return eager(inputs)
    bias = None if inputs.encoding.bias_by_blocks else inputs.bias(inputs.scaled_q)

    def attend_block(start: int, stop: int, visible: int) -> Tensor:
        block_bias = None if bias is None else _slice_bias(bias, start, stop, visible)
        return with_weights(inputs.block(start, stop, visible), block_bias)[0]

    outputs = []
    for start in range(0, queries, size):
        stop = min(start + size, queries)
        last = inputs.masks.last_visible[start:stop]
        # Positions of a block require at least the keys up to its last query.
        visible = max(inputs.positions.first + stop, *last) if last else keys
        outputs.append(
            checkpoint(attend_block, start, stop, visible, use_reentrant=False, preserve_rng_state=inputs.dropout > 0)
        )
    return torch.cat(outputs, dim=2)


def _slice_bias(bias: Tensor, start: int, stop: int, keys: int) -> Tensor:
    """Slices a bias (..., T or 1, S) to queries ``start`` to ``stop - 1`` and the first ``keys`` keys."""
    return bias[..., :keys] if bias.size(-2) == 1 else bias[..., start:stop, :keys]


def flex(inputs: AttentionInputs) -> Tensor:
    """PyTorch's FlexAttention, compiled; on a CPU without gradients.

    Raises:
        FlagError: a gradient is needed on a CPU.
    """
    q, k, v, encoding = inputs.scaled_q, inputs.k, inputs.v, inputs.encoding
    if q.device.type == "cpu" and flex_kernel.COMPILED and torch.is_grad_enabled():
        needs_gradient = any(x.requires_grad for x in (q, k, v, *encoding.parameters()))
        if needs_gradient:
            raise FlagError(
                "--attention-backend flex trains on a GPU only: leave it out or use auto, or call attention under "
                "torch.no_grad() if you need no gradients."
            )
    return encoding.attend_with_flex(q, k, v, inputs.positions, inputs.masks)


def auto(inputs: AttentionInputs) -> Tensor:
    """Uses the fastest backend in our measurements (docs/performance.md).

    That is the fused kernel where the encoding allows it and it is faster; otherwise all logits at once, or blocks for
    long sequences on a CPU.
    """
    return choose(inputs)(inputs)


def choose(inputs: AttentionInputs) -> Backend:
    """The backend that ``auto`` uses for these inputs."""
    encoding, on_cpu = inputs.encoding, inputs.q.device.type == "cpu"
    fused = not (encoding.needs_weights or encoding.multiplies_weights)
    if on_cpu:
        # PyTorch has no fused CPU kernel for a trainable bias, and for one query its kernel is 2 to 4 times slower.
        trainable = (
            torch.is_grad_enabled() and encoding.adds_bias and any(p.requires_grad for p in encoding.parameters())
        )
        fused = fused and not trainable and inputs.q.size(2) > 1
    if fused:
        return sdpa
    # We have not measured blocks on a GPU: users who run out of memory there can select blocks or flex.
    long = on_cpu and inputs.q.size(2) >= LONG
    return (
        blocks
        if long and not _unsupported_reason("blocks", encoding, inputs.dropout, inputs.positions.is_cross_attention)
        else eager
    )


#: minimum number of queries for which auto uses blocks: from here on the logits would dominate memory
LONG = 384
BACKENDS: dict[str, Backend] = {"auto": auto, "sdpa": sdpa, "flex": flex, "eager": eager, "blocks": blocks}


def _unsupported_reason(
    backend: str, encoding: PositionEncoding, dropout: float, is_cross_attention: bool
) -> str | None:
    """Why the backend cannot compute this attention, as a clause of a message; None if it can."""
    if backend == "sdpa" and encoding.needs_weights:
        return f"{encoding.name} needs the logits or the weights, which the fused kernel does not return"
    if backend in ("sdpa", "flex") and encoding.multiplies_weights:
        return f"{encoding.name} multiplies the weights after the softmax (--urpe), which a fused kernel cannot"
    if backend == "blocks" and encoding.projects_length:
        return f"{encoding.name} attends to a fixed number of mixtures of the keys, so it needs no blocks"
    if backend == "flex" and encoding.overrides("content"):
        return f"{encoding.name} replaces q k^T, and FlexAttention can only modify it"
    if backend == "flex" and encoding.segments is not None and encoding.overrides("attend_with_flex"):
        return f"{encoding.name} does not support segments with FlexAttention"
    if backend in ("blocks", "flex") and is_cross_attention:
        return "it supports self-attention only"
    if backend == "flex" and dropout > 0:
        return "FlexAttention does not support dropout (--attention-dropout must be 0)"
    return None


def check_backend(
    name: str, encoding: PositionEncoding, dropout: float = 0.0, is_cross_attention: bool = False
) -> None:
    """Refuses a backend that does not exist or cannot compute this attention.

    Raises:
        FlagError: the message names the backend and the reason.
    """
    if name not in BACKENDS:
        raise FlagError(f"there is no attention backend {name!r}; use one of {', '.join(BACKENDS)}.")
    reason = _unsupported_reason(name, encoding, dropout, is_cross_attention)
    if reason:
        raise FlagError(f"--attention-backend {name} cannot be used: {reason}; leave it out or use auto.")
