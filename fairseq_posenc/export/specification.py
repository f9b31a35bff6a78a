"""A model of this package as CTranslate2's specification of a Transformer."""

from __future__ import annotations

import copy
from typing import Any

import torch
from ctranslate2.converters import fairseq as stock
from ctranslate2.specs import common_spec, model_spec, transformer_spec

from ..attention.module import PositionCrossAttention
from ..input_positions import LearnedPositions
from .errors import ExportError
from .positions import place_of, refusal

ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "gelu_accurate": common_spec.Activation.GELUTanh,
    "gelu_fast": common_spec.Activation.GELUTanh,
    "tanh": common_spec.Activation.Tanh,
}
#: what CTranslate2's own converter calls fairseq's <pad>
BLANK = "<blank>"


@torch.no_grad()
def make_specification(model: Any, source: Any, target: Any) -> transformer_spec.TransformerSpec:
    """The model, in single precision, and its vocabularies.

    Args:
        model: a PositionTransformer, on the CPU.
        source, target: fairseq's dictionaries.

    Raises:
        ExportError: CTranslate2 has no place for a part of the model.
    """
    check(model)
    specification = transformer_spec.TransformerSpec(_encoder(model.encoder), _decoder(model.decoder))
    specification.register_source_vocabulary(vocabulary(source))
    specification.register_target_vocabulary(vocabulary(target))
    config = specification.config
    config.add_source_eos = True
    config.decoder_start_token = config.eos_token
    config.layer_norm_epsilon = model.encoder.layers[0].self_attn_layer_norm.eps
    return copy.deepcopy(specification)  # quantizing works in place, and the arrays are still the model's


def vocabulary(dictionary: Any) -> list[str]:
    """By index, as CTranslate2's own converter writes it.

    Raises:
        ExportError: two entries would have one name.
    """
    symbols = [BLANK if symbol == dictionary.pad_word else symbol for symbol in dictionary.symbols]
    if len(set(symbols)) < len(symbols):
        raise ExportError(f"The dictionary has a word twice, or the word {BLANK}, which CTranslate2 cannot tell apart.")
    return symbols


def check(model: Any) -> None:
    """Refuses what is not about positions, and has no place.

    Raises:
        ExportError: there is such a thing.
    """
    decoder = model.decoder
    activation = decoder.cfg.activation_fn
    for refused, what, why in (
        (not model.encoder.layers or not decoder.layers, "a stack without layers", "its stacks have one at least"),
        (activation not in ACTIVATIONS, f"--activation-fn {activation}", f"it has {', '.join(ACTIVATIONS)}"),
        (decoder.adaptive_softmax is not None, "--adaptive-softmax-cutoff", "its output is one softmax"),
    ):
        if refused:
            raise refusal(what, why)
    for layer in decoder.layers:
        if layer.encoder_attn is None:
            raise refusal("--no-cross-attention", "its decoder attends to the source")
        if isinstance(layer.encoder_attn, PositionCrossAttention):
            raise refusal("--cross-attention-positions", "between source and target it knows no positions")


def _encoder(encoder: Any) -> transformer_spec.TransformerEncoderSpec:
    opened, held = _positions(encoder, in_decoder=False)
    specification = transformer_spec.TransformerEncoderSpec(
        len(encoder.layers),
        encoder.layers[0].self_attn.num_heads,
        no_final_norm=encoder.layer_norm is None,
        **_common_settings(encoder),
        **opened,
    )
    for place, layer in zip(specification.layer, encoder.layers, strict=True):
        stock.set_transformer_encoder_layer(place, layer)
    _fill(specification, specification.embeddings[0], encoder, held)
    return specification


def _decoder(decoder: Any) -> transformer_spec.TransformerDecoderSpec:
    opened, held = _positions(decoder, in_decoder=True)
    projections = {"project_in": decoder.project_in_dim, "project_out": decoder.project_out_dim}
    specification = transformer_spec.TransformerDecoderSpec(
        len(decoder.layers),
        decoder.layers[0].self_attn.num_heads,
        no_final_norm=decoder.layer_norm is None,
        project_in_out=True,
        alignment_heads=0,  # all of the last layer, as fairseq's
        **_common_settings(decoder),
        **opened,
    )
    for place, layer in zip(specification.layer, decoder.layers, strict=True):
        stock.set_transformer_decoder_layer(place, layer)
    stock.set_linear(specification.projection, decoder.output_projection)
    for name, linear in projections.items():
        if linear is None:
            delattr(specification, name)
        else:
            stock.set_linear(getattr(specification, name), linear)
    _fill(specification, specification.embeddings, decoder, held)
    return specification


def _common_settings(stack: Any) -> dict[str, Any]:
    return {
        "pre_norm": stack.layers[0].normalize_before,
        "activation": ACTIVATIONS[stack.cfg.activation_fn],
        "layernorm_embedding": stack.layernorm_embedding is not None,
    }


def _fill(specification: Any, embeddings: Any, stack: Any, held: list[dict[str, Any]]) -> None:
    """What encoder and decoder both have, positions included."""
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
    for place, tables in zip(specification.layer, held, strict=True):
        for name, table in tables.items():
            setattr(place.self_attention, name, model_spec.OPTIONAL if table is None else table)


def _positions(stack: Any, in_decoder: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What opens the place for the encodings of a stack, and what each layer's holds.

    Raises:
        ExportError: there is no place.
    """
    at_input = stack.embed_positions is not None
    places = [place_of(layer.self_attn.position_encoding, in_decoder, at_input) for layer in stack.layers]
    return places[0].opened_by, [place.holds for place in places]
