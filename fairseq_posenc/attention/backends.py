"""The attention backends: PyTorch's fused kernel, FlexAttention, all logits at once, or blocks of queries.

They compute the same result and differ in time and memory. In each, the bias is added to the content logits, and masks
hide a pair by -inf, which no bias outweighs: `eager` adds first the bias and then the masks to the logits, `sdpa` and
`blocks` give the fused kernel the sum of both, and `flex` has the bias as `score_mod` and the masks as a block mask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..encodings.contract.base import PositionEncoding, adds_bias, overrides, whole_bias
from ..errors import FlagError
from ..kernels import flex as flex_kernel
from ..kernels.learned_bias import FusedWithLearnedBias
from ..masks import Masks
from ..positions import Positions


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

    def masked_bias(self, q: Tensor) -> Tensor | None:
        """The bias plus the masks, broadcastable to (B, H, T, S); q is scaled."""
        bias, mask = whole_bias(self.encoding, q, self.k, self.positions), self.masks.additive
        if bias is not None and bias.dtype not in (q.dtype, torch.float32):
            bias = bias.to(q.dtype)  # the fused kernel takes no others
        if bias is None or mask is None:
            return mask if bias is None else bias
        return bias + mask

    def block(self, q: Tensor, start: int, keys: int, prepared: Any) -> AttentionInputs:
        """The inputs for q, the queries from ``start`` on, and the first ``keys`` keys."""
        stop = start + q.size(2)
        # Keys are sliced only if some are left out: the gradient of a slice fills a tensor of all keys with zeros.
        k, v = (x if x.size(2) == keys else x[:, :, :keys] for x in (self.k, self.v))
        positions, masks = self.positions.block(start, stop, keys, prepared), self.masks.block(start, stop, keys)
        return replace(self, q=q, k=k, v=v, positions=positions, masks=masks)


#: returns the output, (B, H, T, d)
Backend = Callable[[AttentionInputs], Tensor]


def sdpa(inputs: AttentionInputs) -> Tensor:
    """PyTorch's fused kernel."""
    k, v, encoding = inputs.k, inputs.v, inputs.encoding
    if not adds_bias(encoding):
        # Let the kernel scale q: without a bias the result is then bitwise equal to stock fairseq's.
        mask = inputs.masks.additive
        return F.scaled_dot_product_attention(inputs.q, k, v, mask, inputs.dropout, scale=encoding.scaling)
    q = inputs.scaled_q
    return F.scaled_dot_product_attention(q, k, v, inputs.masked_bias(q), inputs.dropout, scale=1.0)


def eager(inputs: AttentionInputs) -> Tensor:
    """Computes all logits at once, following the equation."""
    return with_weights(inputs)[0]


def with_weights(inputs: AttentionInputs) -> tuple[Tensor, Tensor]:
    """Computes attention with explicit weights.

    Returns:
        output (B, H, T, d), and the weights before dropout, (B, H, T, S).
    """
    return inputs.encoding.attend(inputs.scaled_q, inputs.k, inputs.v, inputs.positions, inputs.masks, inputs.dropout)


#: maximum number of logits in one block: with fewer, products are slower; with more, they do not fit in a CPU's cache
BLOCK_LOGITS = 1 << 20


def blocks(inputs: AttentionInputs) -> Tensor:
    """Computes attention in blocks of queries and recomputes each block in the backward pass.

    Memory is linear in the length, unless the encoding computes its bias for all queries at once (``bias_by_blocks``
    is false). A block skips keys that the mask hides from all of its queries.
    """
    batch, heads, queries, _ = inputs.q.shape
    keys, encoding = inputs.k.size(2), inputs.encoding
    size = max(16, BLOCK_LOGITS // max(1, batch * heads * keys))
    if size >= queries:
        return eager(inputs)
    # Outside of the checkpoints, so that the backward pass computes neither again.
    by_blocks = encoding.facts.bias_by_blocks
    prepared = encoding.prepare(inputs.positions, inputs.q.dtype) if by_blocks else None
    bias = None if by_blocks else whole_bias(encoding, inputs.scaled_q, inputs.k, inputs.positions)
    explicit = encoding.needs_logits(inputs.positions) or encoding.urpe is not None or inputs.dropout > 0

    def attend_block(q: Tensor, bias: Tensor | None, start: int, visible: int, earlier_runs: list[None]) -> Tensor:
        if bias is not None and visible < keys:
            bias = bias[..., :visible]
        block = inputs.block(q, start, visible, prepared if by_blocks else bias)
        if explicit:
            return eager(block)
        scaled_q = block.scaled_q
        masked_bias = block.masked_bias(scaled_q)
        if masked_bias is None or not masked_bias.requires_grad:
            return F.scaled_dot_product_attention(scaled_q, block.k, block.v, masked_bias, scale=1.0)
        output: Tensor = FusedWithLearnedBias.apply(scaled_q, block.k, block.v, masked_bias, bool(earlier_runs))
        earlier_runs.append(None)
        return output

    outputs = []
    starts = range(0, queries, size)
    # Split, not sliced: the gradient of each slice fills a tensor of all queries with zeros.
    biases = [bias] * len(starts) if bias is None or bias.size(-2) == 1 else bias.split(size, dim=-2)
    for start, q, block_bias in zip(starts, inputs.q.split(size, dim=2), biases, strict=True):
        stop = start + q.size(2)
        last = inputs.masks.last_visible[start:stop]
        # Positions of a block require at least the keys up to its last query.
        visible = max(inputs.positions.first + stop, *last) if last else keys
        earlier_runs: list[None] = []  # the checkpoint passes the same list to both runs of the block
        arguments = q, block_bias, start, visible, earlier_runs
        outputs.append(checkpoint(attend_block, *arguments, use_reentrant=False, preserve_rng_state=inputs.dropout > 0))
    return torch.cat(outputs, dim=2)


def flex(inputs: AttentionInputs) -> Tensor:
    """PyTorch's FlexAttention, compiled; blocks for an encoding with its own ``attend``, and ``auto`` on a CPU."""
    q, k, encoding, positions = inputs.scaled_q, inputs.k, inputs.encoding, inputs.positions
    if q.device.type == "cpu" and flex_kernel.COMPILED:
        return auto(inputs)
    if encoding.needs_logits(positions):
        return blocks(inputs)
    score_mod = encoding.score_mod(q, k, positions)
    if encoding.segments is not None:
        of_segments = flex_kernel.dense_score_mod(encoding.segments(positions).to(q.dtype))
        score_mod = flex_kernel.chained(score_mod, of_segments)
    return flex_kernel.flex_kernel(q, k, inputs.v, positions, inputs.masks, score_mod)


def auto(inputs: AttentionInputs) -> Tensor:
    """Uses the fastest backend in our measurements (docs/performance.md).

    That is the fused kernel where the encoding allows it and it is faster; otherwise all logits at once, or blocks for
    long sequences on a CPU.
    """
    return choose(inputs)(inputs)


def choose(inputs: AttentionInputs) -> Backend:
    """The backend that ``auto`` uses for these inputs."""
    encoding, on_cpu = inputs.encoding, inputs.q.device.type == "cpu"
    fused = not (encoding.needs_logits(inputs.positions) or encoding.urpe is not None)
    if on_cpu:
        # PyTorch has no fused CPU kernel for a trainable bias, and for one query its kernel is 2 to 4 times slower.
        # Activation checkpointing runs the first pass without gradients: with dropout, it must draw the second's masks.
        gradients = torch.is_grad_enabled() or (inputs.positions.recomputed and inputs.dropout > 0)
        trainable = adds_bias(encoding) and any(p.requires_grad for p in encoding.parameters())
        same_width = inputs.k.size(-1) == inputs.v.size(-1)  # else PyTorch computes all logits, too, and copies more
        fused = fused and not (gradients and trainable) and inputs.q.size(2) > 1 and same_width
    if fused:
        return sdpa
    # We have not measured blocks on a GPU: users who run out of memory there can select blocks or flex.
    long = on_cpu and inputs.q.size(2) >= LONG
    if long and not _unsupported_reason("blocks", encoding, inputs.dropout, inputs.positions.is_cross_attention):
        return blocks
    return eager


#: minimum number of queries for which auto uses blocks: from here on the logits would dominate memory
LONG = 384
BACKENDS: dict[str, Backend] = {"auto": auto, "sdpa": sdpa, "flex": flex, "eager": eager, "blocks": blocks}


def _unsupported_reason(
    backend: str, encoding: PositionEncoding, dropout: float, is_cross_attention: bool
) -> str | None:
    """Why the backend cannot compute this attention, as a clause of a message; None if it can."""
    if backend == "sdpa" and encoding.needs_logits():
        return f"{encoding.name} needs the logits or the weights, which the fused kernel does not return"
    if backend in ("sdpa", "flex") and encoding.urpe is not None:
        return f"{encoding.name} multiplies the weights after the softmax (--urpe), which a fused kernel cannot"
    if backend == "blocks" and encoding.facts.projects_length:
        return f"{encoding.name} attends to a fixed number of mixtures of the keys, so it needs no blocks"
    if backend == "flex" and encoding.needs_logits() and not overrides(encoding, "attend"):
        return f"{encoding.name} replaces q k^T, and FlexAttention can only modify it"
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
