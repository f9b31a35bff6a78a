"""Every registered encoding with the values of its options to test; a new encoding is included automatically."""

from typing import Any

import pytest
import torch

from fairseq_posenc.encodings import ENCODINGS, PositionEncoding, build_encoding
from fairseq_posenc.encodings.contract.options import SHARING, Option, parse_bool
from fairseq_posenc.encodings.contract.registry import has_scalars

#: values to test in addition to the default; options with choices and bools are tested with every value
INTERESTING: dict[str, tuple[Any, ...]] = {
    "clipping_distance": (0, 1, 3, 64),
    "fire_threshold": (3.0,),  # shorter than some sentences and longer than others
    "left_clip": (0, 2),
    "right_clip": (0, 2),
    "max_distance": (17,),
    "max_positions": (20,),
    "num_buckets": (8,),
    "position_buckets": (4,),
    "position_rank": (1, 7),
    "projection_length": (2, 3, 40),
    "rotary_base": (100.0,),
    "rotary_fraction": (0.5,),
    "rotary_linear_scale": (1.5,),
    "rotary_ntk_scale": (4.0,),
    "segment_vectors": (False,),  # true needs segments, which are tested separately
}
IMPOSSIBLE = [("deberta", {"clipping_distance": 0}), ("deberta", {"max_distance": 17})]
#: DeBERTa-v2's logarithmic buckets, such that one of them has two distances in a sentence of 6 tokens
LOG_BUCKETS = {"position_buckets": 6, "max_distance": 7}
DEBERTA: list[dict[str, Any]] = [
    {"clipping_distance": 2, "position_index": "paper"},
    LOG_BUCKETS,
    {**LOG_BUCKETS, "content_to_position": False},
    {**LOG_BUCKETS, "position_to_content": False},
    {**LOG_BUCKETS, "position_index": "paper"},
    {"share_key_projection": True, "clipping_distance": 2},
    {"share_key_projection": True, "position_to_content": False},
    {"share_key_projection": True, "content_to_position": False},
    {**LOG_BUCKETS, "share_key_projection": True},
    {**LOG_BUCKETS, "share_key_projection": True, "content_to_position": False},
    {**LOG_BUCKETS, "share_key_projection": True, "position_to_content": False},
    {**LOG_BUCKETS, "share_key_projection": True, "position_index": "paper"},
]

Variant = tuple[str, dict[str, Any]]


def _values(name: str, option: Option) -> tuple[Any, ...]:
    values = INTERESTING.get(name) or option.choices or ((True, False) if option.parse is parse_bool else ())
    assert values, f"say in tests/variants.py which values of {name} are interesting"
    return values


def _variants(typed_only: bool) -> list[Variant]:
    found: list[Variant] = []
    for name, cls in ENCODINGS.items():
        found.append((name, {}))
        for option, meaning in cls.options.items():
            if meaning.is_flag or not typed_only:
                found += [(name, {option: value}) for value in _values(option, meaning)]
        if has_scalars(build_encoding(name, num_heads=2, head_dim=4)):
            found.append((name, {"bias_gain": 3.0}))
        if "clipping_distance" in cls.options and "position_sharing" in cls.options:
            found += [(name, {"clipping_distance": 2, "position_sharing": sharing}) for sharing in SHARING]
    found.append(("shaw", {"relative_keys": False, "relative_values": False}))
    found += [("deberta", options) for options in DEBERTA]
    found.append(("tupe_rel", {"untie_first_token": True, "num_buckets": 8}))
    found.append(("tupe_rel", {"untie_first_token": True, "bias_gain": "auto"}))
    found += [("alibi", {"alibi_slopes": slopes, "bias_gain": 3.0}) for slopes in ("learned", "two-sided")]
    if not typed_only:
        found.append(("fire", {"fire_threshold": 3.0, "bidirectional": False}))
        found.append(("alibi", {"alibi_slopes": "two-sided", "bidirectional": False}))
    found.append(("t5", {"position_sharing": "none", "bias_gain": 0.25}))
    found += [("t5", {"urpe": True}), ("shaw", {"urpe": True, "clipping_distance": 2})]
    found.append(("rotary", {"rotary_fraction": 0.5, "rotary_layout": "half"}))
    if not typed_only:
        xpos = {"xpos": True, "bidirectional": False}
        found += [("rotary", xpos), ("rotary", {**xpos, "rotary_layout": "half", "rotary_linear_scale": 1.5})]
    return [variant for variant in found if variant not in IMPOSSIBLE]


def _distinct(variants: list[Variant]) -> list[Variant]:
    """Leaves out variants that build the same as an earlier one, such as options at their defaults."""
    found: dict[str, Variant] = {}
    for name, options in variants:
        encoding = build_encoding(name, num_heads=2, head_dim=8, **options)
        shapes = {key: tuple(value.shape) for key, value in encoding.named_parameters()}
        # Which layers share parameters makes no difference to one encoding.
        other = {"position_sharing", "shared_by_layers", "training"}
        settings = {
            key: value
            for key, value in vars(encoding).items()
            if key not in other and isinstance(value, bool | int | float | str | None)
        }
        found.setdefault(repr((name, shapes, settings)), (name, options))
    return list(found.values())


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


def _takes_masks(name: str, options: dict[str, Any]) -> bool:
    return not build_encoding(name, num_heads=2, head_dim=4, **options).facts.projects_length


#: combinations with flags of the model; w3 is a word of tests/models.py
COMBINATIONS: list[Variant] = [
    *(
        (name, {"cross_attention_positions": True, "segment_separator": "w3", "num_segments": 3})
        for name, cls in ENCODINGS.items()
        if cls.facts.supports_cross_attention
    ),
    ("diet_abs", {"cross_attention_positions": True, "position_sharing": "none"}),
    ("shaw", {"target_position_encoding": "diet_abs", "cross_attention_positions": True, "clipping_distance": 2}),
    ("sinusoidal", {"target_position_encoding": "shaw", "segment_separator": "w3"}),
    ("sinusoidal", {"sinusoids": "paper"}),
    ("huang3", {"source_position_encoding": "learned", "segment_separator": "w3"}),
    ("tupe_rel", {"source_position_encoding": "linformer", "input_positions": "sinusoidal"}),
    ("xlnet", {"segment_vectors": True, "segment_separator": "w3"}),
    ("diet_abs_lin", {"target_position_encoding": "rotary"}),
    ("deberta", {"target_position_encoding": "t5", "max_distance": 17}),
    ("shaw", {"target_position_encoding": "deberta", "clipping_distance": 2, **LOG_BUCKETS}),
    ("shaw", {"segment_separator": "w3", "bias_gain": "auto"}),
    ("nopos", {"target_position_encoding": "t5", "bias_gain": "auto"}),
    ("diet_rel", {"cross_attention_positions": True, "segment_separator": "w3", "bias_gain": 3.0}),
    ("learned", {"bias_gain": 3.0}),
    ("alibi", {"alibi_slopes": "two-sided", "segment_separator": "w3", "bias_gain": "auto"}),
    ("t5", {"input_positions": "learned", "bias_gain": "auto"}),
    ("t5", {"urpe": True, "cross_attention_positions": True, "segment_separator": "w3"}),
    ("diet_abs_lin", {"urpe": True}),
    ("forget", {"urpe": True, "target_position_encoding": "t5"}),
]

#: variants by the flags of a model
VARIANTS = _parameters(_variants(typed_only=True) + COMBINATIONS)
_ALONE = _distinct(_variants(typed_only=False))
#: variants by the options of build_encoding
ALONE = _parameters(_ALONE)
#: variants with positions in attention only
IN_ATTENTION = _parameters([variant for variant in _ALONE if ENCODINGS[variant[0]].facts.input_positions == "none"])
#: variants that support masks
MASKABLE = _parameters([variant for variant in _ALONE if _takes_masks(*variant)])
#: variants with a causal form: in an encoder, fire knows the length of the sentence
CAUSAL = [case for case in MASKABLE if case.values[0] != "fire" or case.values[1].get("bidirectional") is False]


def ignores_order(name: str, options: dict[str, Any]) -> bool:
    """Whether the output of an encoder with this encoding does not depend on the order of tokens."""
    without_tables = options.get("relative_keys") is False and options.get("relative_values") is False
    return name == "nopos" or options.get("clipping_distance") == 0 or without_tables
