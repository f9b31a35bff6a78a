"""Converts a model of this package to CTranslate2's specification of a Transformer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from ctranslate2.converters import fairseq as stock
from ctranslate2.specs import common_spec, model_spec, transformer_spec

from ..attention.module import PositionCrossAttention
from ..input_positions import LearnedPositions
from .positions import export_encoding, refusal

ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "gelu_accurate": common_spec.Activation.GELUTanh,
    "gelu_fast": common_spec.Activation.GELUTanh,
    "tanh": common_spec.Activation.Tanh,
}
#: the name of fairseq's <pad> in CTranslate2's own converter
BLANK = "<blank>"


@torch.no_grad()
def make_specification(model: Any, source: Any, target: Any) -> transformer_spec.TransformerSpec:
    """Converts a model and its dictionaries.

    Args:
        model: a PositionTransformer in single precision on the CPU.
        source, target: fairseq's dictionaries.

    Raises:
        ExportError: CTranslate2 does not support a part of the model.
    """
    check(model)
    specification = transformer_spec.TransformerSpec(_encoder(model.encoder), _decoder(model.decoder))
    for register, dictionary in (
        (specification.register_source_vocabulary, source),
        (specification.register_target_vocabulary, target),
    ):
        register([BLANK if symbol == dictionary.pad_word else symbol for symbol in dictionary.symbols])
    config = specification.config
    config.add_source_eos = True
    config.decoder_start_token = config.eos_token
    config.layer_norm_epsilon = model.encoder.layers[0].self_attn_layer_norm.eps
    return copy.deepcopy(specification)  # quantization works in place, and the arrays share the model's memory


def check(model: Any) -> None:
    """Refuses parts of the model, other than positions, that CTranslate2 does not support.

    Raises:
        ExportError: there is such a part.
    """
    stacks, activation = (model.encoder, model.decoder), model.decoder.cfg.activation_fn
    cross = [layer.encoder_attn for layer in model.decoder.layers]
    unsupported = {
        "a stack without layers": not all(stack.layers for stack in stacks),
        f"--activation-fn {activation}": activation not in ACTIVATIONS,
        "--position-augmentation random, --segment-shift or --length-encoding": any(
            stack.settings.augmentation.at_evaluation or getattr(stack.embed_positions, "length_encoding", None)
            for stack in stacks
        ),
        "--adaptive-softmax-cutoff": model.decoder.adaptive_softmax is not None,
        "--no-cross-attention": None in cross,
        "positions between source and target": any(isinstance(module, PositionCrossAttention) for module in cross),
    }
    for what, present in unsupported.items():
        if present:
            raise refusal(what, "train another model for it")


def _encoder(encoder: Any) -> transformer_spec.TransformerEncoderSpec:
    specification = _stack(transformer_spec.TransformerEncoderSpec, encoder, stock.set_transformer_encoder_layer)
    stock.set_embeddings(specification.embeddings[0], encoder.embed_tokens)
    return specification


def _decoder(decoder: Any) -> transformer_spec.TransformerDecoderSpec:
    specification = _stack(
        transformer_spec.TransformerDecoderSpec,
        decoder,
        stock.set_transformer_decoder_layer,
        project_in_out=True,
        alignment_heads=0,  # all heads of the last layer, as in fairseq
    )
    stock.set_embeddings(specification.embeddings, decoder.embed_tokens)
    stock.set_linear(specification.projection, decoder.output_projection)
    for name, linear in (("project_in", decoder.project_in_dim), ("project_out", decoder.project_out_dim)):
        if linear is None:
            delattr(specification, name)
        else:
            stock.set_linear(getattr(specification, name), linear)
    return specification


def _stack(kind: Any, stack: Any, set_layer: Callable[[Any, Any], None], **options: Any) -> Any:
    """The specification of what encoder and decoder have in common, including positions.

    Raises:
        ExportError: CTranslate2 does not support the position encoding.
    """
    in_decoder, at_input = kind is transformer_spec.TransformerDecoderSpec, stack.embed_positions is not None
    exported = [export_encoding(layer.self_attn.position_encoding, in_decoder, at_input) for layer in stack.layers]
    if any(encoding.options != exported[0].options for encoding in exported):
        names = ",".join(layer.self_attn.position_encoding.name for layer in stack.layers)
        raise refusal(f"layers with different encodings ({names})", "train with one encoding for all layers of a stack")
    specification = kind(
        len(stack.layers),
        stack.layers[0].self_attn.num_heads,
        pre_norm=stack.layers[0].normalize_before,
        no_final_norm=stack.layer_norm is None,
        activation=ACTIVATIONS[stack.cfg.activation_fn],
        layernorm_embedding=stack.layernorm_embedding is not None,
        **options,
        **exported[0].options,
    )
    for layer_specification, layer, encoding in zip(specification.layer, stack.layers, exported, strict=True):
        set_layer(layer_specification, layer)
        for name, table in encoding.tables.items():
            setattr(layer_specification.self_attention, name, model_spec.OPTIONAL if table is None else table)
    specification.scale_embeddings = float(stack.embed_scale)
    for norm in ("layer_norm", "layernorm_embedding"):
        if getattr(stack, norm) is not None:
            stock.set_layer_norm(getattr(specification, norm), getattr(stack, norm))
    if at_input:
        stock.set_position_encodings(specification.position_encodings, stack.embed_positions)
        if isinstance(stack.embed_positions, LearnedPositions):
            encodings = specification.position_encodings.encodings
            specification.position_encodings.encodings = stack.embed_positions.bias_gain * encodings
    return specification
