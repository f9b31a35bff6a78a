"""Every registered encoding with the values of its options to test; a new encoding is included automatically."""

from typing import Any

import pytest
import torch

from fairseq_posenc.encodings import ENCODINGS, PositionEncoding

#: DeBERTa-v2's logarithmic buckets, such that one of them has two distances in a sentence of 6 tokens
LOG_BUCKETS = {"position_buckets": 6, "max_distance": 7}
SHARED_PROJECTION = {**LOG_BUCKETS, "share_key_projection": True}
FEW_BUCKETS = {"num_buckets": 8, "max_distance": 17}

Variant = tuple[str, dict[str, Any]]

#: options to test besides the defaults, several at once where one does not hide another
VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "alibi": (
        {"alibi_slopes": "learned", "bias_gain": 3.0},
        {"alibi_slopes": "two-sided", "bias_gain": 3.0},
        {"alibi_slopes": "two-sided", "bidirectional": False},
    ),
    "deberta": (
        {"clipping_distance": 2, "position_index": "paper"},
        {"clipping_distance": 2, "share_key_projection": True},
        {"clipping_distance": 2, "content_to_position": False},
        {"clipping_distance": 2, "position_to_content": False},
        {**LOG_BUCKETS, "position_index": "paper"},
        SHARED_PROJECTION,
        {**SHARED_PROJECTION, "content_to_position": False},
        {**SHARED_PROJECTION, "position_to_content": False},
    ),
    "diet_rel": ({"clipping_distance": 0}, {"clipping_distance": 2, "position_sharing": "head", "bias_gain": 3.0}),
    "diet_abs": ({"position_rank": 7, "position_sharing": "head", "max_positions": 20},),
    "diet_abs_lin": (
        {"projection_length": 2, "position_rank": 7, "position_sharing": "head", "max_positions": 20},
        {"projection_length": 40},
    ),
    "fire": (
        {"fire_threshold": 3.0, "position_sharing": "head"},  # shorter than some sentences and longer than others
        {"fire_threshold": 3.0, "bidirectional": False},
    ),
    "forget": ({"bidirectional": False},),
    "gated_t5": ({**FEW_BUCKETS, "position_sharing": "head", "bias_gain": 3.0}, {"bidirectional": False}),
    "huang1": ({"position_sharing": "head", "max_positions": 20, "bias_gain": 3.0},),
    "huang2": ({"clipping_distance": 0}, {"clipping_distance": 2, "position_sharing": "head", "bias_gain": 3.0}),
    "huang3": ({"clipping_distance": 0}, {"clipping_distance": 2, "position_sharing": "head"}),
    "huang4": ({"clipping_distance": 0}, {"clipping_distance": 2, "position_sharing": "head"}),
    "kerple_log": ({"position_sharing": "head", "bias_gain": 3.0},),
    "kerple_power": ({"position_sharing": "head", "bias_gain": 3.0},),
    "linformer": ({"projection_length": 2, "max_positions": 20}, {"projection_length": 40}),
    "relative_key": ({"left_clip": 0}, {"left_clip": 2, "right_clip": 0, "position_sharing": "none"}),
    "rotary": (
        {"rotary_layout": "half", "rotary_fraction": 0.5},
        {"rotary_base": 100.0, "rotary_linear_scale": 1.5},
        {"rotary_ntk_scale": 4.0},
        {"xpos": True, "bidirectional": False, "rotary_layout": "half", "rotary_linear_scale": 1.5},
    ),
    "shaw": (
        {"clipping_distance": 0},
        {"clipping_distance": 2, "position_sharing": "head"},
        {"clipping_distance": 2, "urpe": True},
        {"relative_keys": False},
        {"relative_values": False},
        {"relative_keys": False, "relative_values": False},
    ),
    "t5": (
        {**FEW_BUCKETS, "position_sharing": "head", "bias_gain": 3.0},
        {"bidirectional": False, "urpe": True},
    ),
    "transformer_xl": ({"query_biases": False},),
    "tupe_abs": ({"untie_first_token": True, "max_positions": 20},),
    "tupe_rel": (
        {**FEW_BUCKETS, "max_positions": 20},
        {"bidirectional": False, "untie_first_token": True, "bias_gain": "auto"},
    ),
    "xlnet": ({"query_biases": False},),  # segment vectors need segments, which are tested separately
}


def _parameters(variants: list[Variant]) -> list[Any]:
    return [
        pytest.param(name, options, id="-".join([name, *(f"{key}={value}" for key, value in options.items())]))
        for name, options in variants
    ]


def converted(encoding: PositionEncoding, dtype: torch.dtype) -> PositionEncoding:
    """Converts the encoding to this precision, and binds it to two fixed projections, as attention does."""
    torch.manual_seed(7)
    width = encoding.num_heads * encoding.head_dim
    query, key = (torch.nn.Linear(width, width, dtype=torch.float64).to(dtype) for _ in range(2))
    encoding.read_layer(torch.zeros(1, 1, width, dtype=dtype), (query, key))
    return encoding.to(dtype)


#: every encoding alone, by the options of build_encoding
ALONE = _parameters([(name, options) for name in ENCODINGS for options in ({}, *VARIANTS.get(name, ()))])
#: every encoding in a model, and combinations with flags of the model; w3 is a word of tests/models.py
IN_MODELS = _parameters(
    [
        *((name, {}) for name in ENCODINGS),
        *(
            (name, {"cross_attention_positions": True, "segment_separator": "w3", "num_segments": 3})
            for name, cls in ENCODINGS.items()
            if cls.facts.supports_cross_attention
        ),
        ("diet_abs", {"cross_attention_positions": True, "position_sharing": "none"}),
        ("shaw", {"target_position_encoding": "diet_abs", "cross_attention_positions": True, "clipping_distance": 2}),
        ("sinusoidal", {"target_position_encoding": "shaw", "segment_separator": "w3"}),
        ("tupe_rel", {"source_position_encoding": "linformer", "input_positions": "sinusoidal"}),
        ("xlnet", {"segment_vectors": True, "segment_separator": "w3"}),
        ("deberta", {"target_position_encoding": "t5", "max_distance": 17}),
        ("deberta", {**SHARED_PROJECTION, "source_position_encoding": "shaw", "clipping_distance": 2}),
        ("rotary", {"xpos": True}),
        ("fire", {"fire_threshold": 3.0, "position_sharing": "all"}),
        ("t5", {"input_positions": "learned", "bias_gain": "auto", "position_sharing": "none"}),
        ("t5", {"urpe": True, "cross_attention_positions": True, "segment_separator": "w3"}),
        ("forget", {"urpe": True, "target_position_encoding": "t5"}),
    ]
)
