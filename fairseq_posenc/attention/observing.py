"""Attention seen from outside: the logits and weights of every layer, whatever backend computes its output."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor

from ..encodings.absolute import NoPositions
from .inputs import AttentionInputs
from .module import PositionAttention, current_positions, split_heads

#: ``(stack, layer)``; stacks are "encoder", "decoder" and "cross"
Place = tuple[str, int]


def attentions(model: Any) -> dict[Place, MultiheadAttention]:
    """Every attention module of a model, by its stack and layer."""
    # .children(), because with --encoder-layerdrop iterating over layers skips some at random.
    modules = {("encoder", number): layer.self_attn for number, layer in enumerate(model.encoder.layers.children())}
    for number, layer in enumerate(model.decoder.layers.children()):
        modules["decoder", number] = layer.self_attn
        if layer.encoder_attn is not None:
            modules["cross", number] = layer.encoder_attn
    return modules


def real_tokens(model: Any, inputs: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """Which queries and keys of each stack are real, no padding: (B, T) and (B, S) of a model's inputs."""
    source = inputs["src_tokens"].ne(model.encoder.padding_idx)
    target = inputs["prev_output_tokens"].ne(model.decoder.padding_idx)
    return {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}


def attended_distance(weights: Tensor, distances: Tensor) -> Tensor:
    """The mean distance of the keys that each query attends to, weighted by attention, (..., T).

    Args:
        weights: (..., T, S).
        distances: of each query and key, broadcastable to the weights.
    """
    return (weights * distances).sum(-1)


@dataclass(frozen=True)
class Observed:
    """What one attention computed in one forward pass, padding included.

    Args:
        logits: before masks, (B, H, T, S), or (B, H, T, number of mixtures) of an encoding that projects the length.
        content: the logits of the words alone, of the same shape.
        weights: before dropout, of the same shape.
        forbidden: where the attention mask hides keys, broadcastable to (B, H, T, S); None where it hides nothing.
        multiplied: whether the weights were multiplied after the softmax, so that they need not sum to 1.
    """

    logits: Tensor
    content: Tensor
    weights: Tensor
    forbidden: Tensor | None
    multiplied: bool = False

    @property
    def shares(self) -> Tensor:
        """The share of each key in a query's attention: of multiplied weights, |w_ij| / sum_j |w_ij|."""
        return F.normalize(self.weights, p=1.0, dim=-1).abs() if self.multiplied else self.weights


@contextmanager
def observing(attentions: Mapping[Any, MultiheadAttention], see: Callable[[Any, Observed], object]) -> Iterator[None]:
    """Within the context, ``see(key, observed)`` is called for each attention in each full forward pass.

    For it, the encoding's hooks compute the logits a second time, without gradients; the pass itself stays the same.
    Steps of a generation are not seen.

    Args:
        attentions: modules of this package, or fairseq's between source and target, by any key.
        see: takes the key and what was computed.
    """

    def look(key: Any, module: MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        if call.get("incremental_state") is None:
            with torch.no_grad():
                see(key, _observe(module, call))

    with ExitStack() as hooks:
        for key, attention in attentions.items():
            hooks.enter_context(attention.register_forward_pre_hook(partial(look, key), with_kwargs=True))
        yield


def content_logits(inputs: AttentionInputs, q: Tensor, k: Tensor) -> Tensor:
    """The logits of the words alone, (B, H, T, keys or mixtures).

    Args:
        q, k: those projected, before the encoding's ``transform``.
    """
    encoding = inputs.encoding
    return (q * encoding.scaling) @ (inputs.k if encoding.facts.projects_length else k).transpose(-2, -1)


def _observe(module: MultiheadAttention, call: Mapping[str, Any]) -> Observed:
    """What attention computes of the arguments of its ``forward``."""
    stack = current_positions()
    positions = None if stack is None else stack.own if module.self_attention else stack.cross
    if positions is None:
        raise RuntimeError("attention is observed inside a forward pass of an encoder or decoder only.")
    if isinstance(module, PositionAttention):
        encoding = module.position_encoding
    else:
        encoding = NoPositions(module.num_heads, module.head_dim)
    query = call["query"]
    project_query, project_key = (partial(_projected, by=by) for by in (module.q_proj, module.k_proj))
    q = split_heads(project_query(query), module.num_heads)
    k = split_heads(project_key(query if module.self_attention else call["key"]), module.num_heads)
    positions = positions.with_cache(positions.cache.for_observer())
    inputs = AttentionInputs.from_projected(
        encoding, q, k, k, positions, call.get("attn_mask"), 0.0, query.transpose(0, 1), (project_query, project_key)
    )
    logits = inputs.logits()
    weights = inputs.weights(logits.clone())
    multiplied = encoding.urpe is not None
    return Observed(logits, content_logits(inputs, q, k), weights, inputs.masks.forbidden, multiplied)


def _projected(x: Tensor, by: Any) -> Tensor:
    """Projects x without calling the module: with --quant-noise-pq a call would change its weights."""
    return F.linear(x, by.weight, by.bias)
