"""The attention backends: PyTorch's fused kernel, FlexAttention, all logits at once, or blocks of queries.

They compute the same result and differ in time and memory. In each, the bias is added to the content logits, and masks
hide a pair by -inf, which no bias outweighs: `eager` adds first the bias and then the masks to the logits, `sdpa` and
`blocks` give the fused kernel the sum of both, and `flex` has the bias as `score_mod` and the masks as a block mask.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..encodings.contract.base import PositionEncoding
from ..errors import FlagError
from ..kernels import flex as flex_kernel
from ..kernels.learned_bias import FusedWithLearnedBias
from .inputs import AttentionInputs

#: returns the output, (B, H, T, d)
Backend = Callable[[AttentionInputs], Tensor]


def sdpa(inputs: AttentionInputs) -> Tensor:
    """PyTorch's fused kernel."""
    if not inputs.encoding.adds_bias:
        # Let the kernel scale q: without a bias the result is then bitwise equal to stock fairseq's.
        q, mask, scale = inputs.q, inputs.masks.additive, inputs.encoding.scaling
    else:
        q, mask, scale = inputs.scaled_q, inputs.masked_bias(), 1.0
    return F.scaled_dot_product_attention(q, inputs.k, inputs.v, mask, inputs.dropout, scale=scale)


def eager(inputs: AttentionInputs) -> Tensor:
    """Computes all logits at once, following the equation."""
    return inputs.output_and_weights()[0]


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
    bias = None if by_blocks else inputs.bias()
    explicit = encoding.needs_logits(inputs.positions) or encoding.urpe is not None or inputs.dropout > 0

    def attend_block(q: Tensor, bias: Tensor | None, start: int, visible: int, earlier_runs: list[None]) -> Tensor:
        block = inputs.block(q, start, visible, prepared, bias)
        if explicit:
            return eager(block)
        masked_bias = block.masked_bias()
        if masked_bias is None or not masked_bias.requires_grad:
            return F.scaled_dot_product_attention(block.scaled_q, block.k, block.v, masked_bias, scale=1.0)
        output: Tensor = FusedWithLearnedBias.apply(block.scaled_q, block.k, block.v, masked_bias, bool(earlier_runs))
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
    """PyTorch's FlexAttention, compiled; blocks for an encoding that needs the weights, and ``auto`` on a CPU."""
    if inputs.q.device.type == "cpu" and flex_kernel.COMPILED:
        return auto(inputs)
    if inputs.encoding.needs_logits(inputs.positions):
        return blocks(inputs)
    return flex_kernel.flex_kernel(
        inputs.scaled_q, inputs.k, inputs.v, inputs.positions, inputs.masks, inputs.score_mod()
    )


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
        gradients = torch.is_grad_enabled() or (inputs.positions.cache.recomputed and inputs.dropout > 0)
        trainable = encoding.adds_bias and any(p.requires_grad for p in encoding.parameters())
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


def compute(inputs: AttentionInputs, backend: str, need_weights: bool) -> tuple[Tensor, Tensor | None]:
    """The output of a backend; or, with ``need_weights``, the output and the weights (B, H, T, S) without a backend."""
    return inputs.output_and_weights() if need_weights else (BACKENDS[backend](inputs), None)


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
    if backend == "flex" and "content" in encoding.hooks and encoding.needs_logits():
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
