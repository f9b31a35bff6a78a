"""Every registered encoding with the values of its options to test; a new encoding is included automatically."""

from typing import Any

import pytest
import torch

from fairseq_posenc import attend
from fairseq_posenc.encodings import ENCODINGS, PositionEncoding, build_encoding
from fairseq_posenc.encodings.contract.options import Option, parse_bool
from fairseq_posenc.encodings.contract.registry import has_scalars

#: values to test in addition to the default; options with choices and bools are tested with every value
INTERESTING: dict[str, tuple[Any, ...]] = {
    "clipping_distance": (0, 2),
    "fire_threshold": (3.0,),  # shorter than some sentences and longer than others
    "left_clip": (0, 2),
    "right_clip": (0,),
    "max_distance": (17,),
    "max_positions": (20,),
    "num_buckets": (8,),
    "position_buckets": (4,),
    "position_rank": (7,),
    "position_sharing": ("none", "head"),  # which layers share parameters makes no difference to one encoding
    "projection_length": (2, 40),
    "rotary_base": (100.0,),
    "rotary_fraction": (0.5,),
    "rotary_linear_scale": (1.5,),
    "rotary_ntk_scale": (4.0,),
    "segment_vectors": (False,),  # true needs segments, which are tested separately
}
#: DeBERTa-v2's logarithmic buckets, such that one of them has two distances in a sentence of 6 tokens
LOG_BUCKETS = {"position_buckets": 6, "max_distance": 7}
SHARED_PROJECTION = {**LOG_BUCKETS, "share_key_projection": True}

Variant = tuple[str, dict[str, Any]]

#: several options at once
TOGETHER: list[Variant] = [
    ("shaw", {"relative_keys": False, "relative_values": False}),
    ("deberta", {"clipping_distance": 2, "position_index": "paper"}),
    ("deberta", {"share_key_projection": True, "clipping_distance": 2}),
    ("deberta", LOG_BUCKETS),
    ("deberta", SHARED_PROJECTION),
    ("deberta", {**SHARED_PROJECTION, "content_to_position": False}),
    ("deberta", {**SHARED_PROJECTION, "position_to_content": False}),
    ("tupe_rel", {"untie_first_token": True, "bias_gain": "auto"}),
    *(("alibi", {"alibi_slopes": slopes, "bias_gain": 3.0}) for slopes in ("learned", "two-sided")),
    ("alibi", {"alibi_slopes": "two-sided", "bidirectional": False}),
    ("fire", {"fire_threshold": 3.0, "bidirectional": False}),
    ("t5", {"urpe": True}),
    ("shaw", {"urpe": True, "clipping_distance": 2}),
    ("rotary", {"rotary_fraction": 0.5, "rotary_layout": "half"}),
    ("rotary", {"xpos": True, "bidirectional": False, "rotary_layout": "half", "rotary_linear_scale": 1.5}),
]
IMPOSSIBLE = [("deberta", {"clipping_distance": 0}), ("deberta", {"max_distance": 17})]


def _values(name: str, option: Option) -> tuple[Any, ...]:
    values = INTERESTING.get(name) or option.choices or ((True, False) if option.parse is parse_bool else ())
    assert values, f"say in tests/variants.py which values of {name} are interesting"
    return values


def _variants() -> list[Variant]:
    """Without those that build the same as an earlier one, such as options at their defaults."""
    candidates: list[Variant] = []
    for name, cls in ENCODINGS.items():
        options = [(key, value) for key, option in cls.options.items() for value in _values(key, option)]
        if has_scalars(build_encoding(name, num_heads=2, head_dim=4)):
            options.append(("bias_gain", 3.0))
        candidates += [(name, {}), *((name, {key: value}) for key, value in options)]
    found: dict[Any, Variant] = {}
    for name, chosen in candidates + TOGETHER:
        if (name, chosen) not in IMPOSSIBLE:
            found.setdefault((name, _computed(name, chosen)), (name, chosen))
    return list(found.values())


def _computed(name: str, chosen: dict[str, Any]) -> tuple[Any, ...]:
    """What tells apart two variants of an encoding: the sizes of parameters, and an output."""
    torch.manual_seed(1)
    encoding = build_encoding(name, num_heads=2, head_dim=8, **chosen).double()
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    q, k, v = torch.randn(3, 1, 2, 20, 8, dtype=torch.float64)
    output, _ = attend(q, k, v, converted(encoding, torch.float64))
    return *(value.shape for value in encoding.parameters()), output.detach().numpy().round(6).tobytes()


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


#: variants by the options of build_encoding
ALONE = _parameters(_variants())
#: variants that support masks
MASKABLE = [case for case in ALONE if not ENCODINGS[case.values[0]].facts.projects_length]
#: variants with a causal form: in an encoder, fire knows the length of the sentence
CAUSAL = [case for case in MASKABLE if case.values[0] != "fire" or case.values[1].get("bidirectional") is False]
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
        ("sinusoidal", {"sinusoids": "paper"}),
        ("tupe_rel", {"source_position_encoding": "linformer", "input_positions": "sinusoidal"}),
        ("xlnet", {"segment_vectors": True, "segment_separator": "w3"}),
        ("deberta", {"target_position_encoding": "t5", "max_distance": 17}),
        ("deberta", {**SHARED_PROJECTION, "source_position_encoding": "shaw", "clipping_distance": 2}),
        ("rotary", {"xpos": True}),
        ("fire", {"fire_threshold": 3.0, "position_sharing": "all"}),
        ("learned", {"bias_gain": 3.0}),
        ("t5", {"input_positions": "learned", "bias_gain": "auto", "position_sharing": "none"}),
        ("t5", {"urpe": True, "cross_attention_positions": True, "segment_separator": "w3"}),
        ("forget", {"urpe": True, "target_position_encoding": "t5"}),
    ]
)
