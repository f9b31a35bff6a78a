"""Converts a model of this package to CTranslate2's specification of a Transformer."""

from __future__ import annotations

import copy
from typing import Any

import torch
from ctranslate2.converters import fairseq as stock
from ctranslate2.specs import common_spec, model_spec, transformer_spec

from ..attention.module import PositionCrossAttention
from ..input_positions import LearnedPositions
from .errors import ExportError
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
    specification.register_source_vocabulary(vocabulary(source))
    specification.register_target_vocabulary(vocabulary(target))
    config = specification.config
    config.add_source_eos = True
    config.decoder_start_token = config.eos_token
    config.layer_norm_epsilon = model.encoder.layers[0].self_attn_layer_norm.eps
    return copy.deepcopy(specification)  # quantization works in place, and the arrays share the model's memory


def vocabulary(dictionary: Any) -> list[str]:
    """The vocabulary in the order of its indices, as CTranslate2's own converter writes it.

    Raises:
        ExportError: two entries would have the same name.
    """
    symbols = [BLANK if symbol == dictionary.pad_word else symbol for symbol in dictionary.symbols]
    if len(set(symbols)) < len(symbols):
        raise ExportError(
            f"The dictionary contains a word twice, or the word {BLANK}, which CTranslate2 uses for <pad>: export is "
            "not possible with this dictionary."
        )
    return symbols


def check(model: Any) -> None:
    """Refuses parts of the model, other than positions, that CTranslate2 does not support.

    Raises:
        ExportError: there is such a part.
    """
    decoder = model.decoder
    activation = decoder.cfg.activation_fn
    for refused, what, why in (
        (
            not model.encoder.layers or not decoder.layers,
            "a stack without layers",
            "CTranslate2's encoder and decoder have at least one layer",
        ),
        (
            activation not in ACTIVATIONS,
            f"--activation-fn {activation}",
            f"CTranslate2 supports {', '.join(ACTIVATIONS)}",
        ),
        (
            model.encoder.settings.augmentation.at_evaluation or decoder.settings.augmentation.at_evaluation,
            "--position-augmentation random",
            "CTranslate2's positions are 0, 1, 2, ...; train with another mode, which has these at evaluation",
        ),
        (decoder.adaptive_softmax is not None, "--adaptive-softmax-cutoff", "CTranslate2's output is one softmax"),
    ):
        if refused:
            raise refusal(what, why)
    for layer in decoder.layers:
        if layer.encoder_attn is None:
            raise refusal("--no-cross-attention", "CTranslate2's decoder attends to the source")
        if isinstance(layer.encoder_attn, PositionCrossAttention):
            raise refusal("--cross-attention-positions", "CTranslate2's cross-attention has no positions")


def _encoder(encoder: Any) -> transformer_spec.TransformerEncoderSpec:
    position_options, tables = _positions(encoder, in_decoder=False)
    specification = transformer_spec.TransformerEncoderSpec(
        len(encoder.layers),
        encoder.layers[0].self_attn.num_heads,
        no_final_norm=encoder.layer_norm is None,
        **_common_settings(encoder),
        **position_options,
    )
    for layer_specification, layer in zip(specification.layer, encoder.layers, strict=True):
        stock.set_transformer_encoder_layer(layer_specification, layer)
    _fill(specification, specification.embeddings[0], encoder, tables)
    return specification


def _decoder(decoder: Any) -> transformer_spec.TransformerDecoderSpec:
    position_options, tables = _positions(decoder, in_decoder=True)
    projections = {"project_in": decoder.project_in_dim, "project_out": decoder.project_out_dim}
    specification = transformer_spec.TransformerDecoderSpec(
        len(decoder.layers),
        decoder.layers[0].self_attn.num_heads,
        no_final_norm=decoder.layer_norm is None,
        project_in_out=True,
        alignment_heads=0,  # all heads of the last layer, as in fairseq
        **_common_settings(decoder),
        **position_options,
    )
    for layer_specification, layer in zip(specification.layer, decoder.layers, strict=True):
        stock.set_transformer_decoder_layer(layer_specification, layer)
    stock.set_linear(specification.projection, decoder.output_projection)
    for name, linear in projections.items():
        if linear is None:
            delattr(specification, name)
        else:
            stock.set_linear(getattr(specification, name), linear)
    _fill(specification, specification.embeddings, decoder, tables)
    return specification


def _common_settings(stack: Any) -> dict[str, Any]:
    return {
        "pre_norm": stack.layers[0].normalize_before,
        "activation": ACTIVATIONS[stack.cfg.activation_fn],
        "layernorm_embedding": stack.layernorm_embedding is not None,
    }


def _fill(specification: Any, embeddings: Any, stack: Any, tables: list[dict[str, Any]]) -> None:
    """Sets the parts that encoder and decoder have in common, including positions."""
    stock.set_embeddings(embeddings, stack.embed_tokens)
    specification.scale_embeddings = float(stack.embed_scale)
    for norm in ("layer_norm", "layernorm_embedding"):
        if getattr(stack, norm) is not None:
            stock.set_layer_norm(getattr(specification, norm), getattr(stack, norm))
    if stack.embed_positions is not None:
        positions = specification.position_encodings
        stock.set_position_encodings(positions, stack.embed_positions)
        if isinstance(stack.embed_positions, LearnedPositions):
            positions.encodings = stack.embed_positions.bias_gain * positions.encodings
    for layer_specification, layer_tables in zip(specification.layer, tables, strict=True):
        for name, table in layer_tables.items():
            setattr(layer_specification.self_attention, name, model_spec.OPTIONAL if table is None else table)


def _positions(stack: Any, in_decoder: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """CTranslate2's options of the position encoding of a stack, and the tables of each layer.

    Raises:
        ExportError: CTranslate2 does not support the encoding.
    """
    at_input = stack.embed_positions is not None
    exported = [export_encoding(layer.self_attn.position_encoding, in_decoder, at_input) for layer in stack.layers]
    return exported[0].options, [encoding.tables for encoding in exported]
