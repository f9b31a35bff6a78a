"""Every registered encoding with the values of its options to test; a new encoding is included automatically."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from fairseq_posenc import attend
from fairseq_posenc.encodings import ENCODINGS, PositionEncoding, build_encoding

#: DeBERTa-v2's logarithmic buckets, such that one of them has two distances in a sentence of 6 tokens
LOG_BUCKETS = {"position_buckets": 6, "max_distance": 7}
SHARED_PROJECTION = {**LOG_BUCKETS, "share_key_projection": True}
#: DeBERTa without one of its two terms, and with the equation of its paper
ONE_TERM: tuple[dict[str, Any], ...] = ({"content_to_position": False}, {"position_to_content": False})
PAPER = {"position_index": "paper"}
FEW_BUCKETS = {"num_buckets": 8, "max_distance": 17}
CLIPPED: tuple[dict[str, Any], ...] = ({"clipping_distance": 0}, {"clipping_distance": 2, "position_sharing": "head"})
SMALL_TABLES = {"position_rank": 7, "position_sharing": "head", "max_positions": 20}
GAINED = {"position_sharing": "head", "bias_gain": 3.0}

Variant = tuple[str, dict[str, Any]]

#: options to test besides the defaults, several at once where one does not hide another
VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "alibi": (
        {"alibi_slopes": "learned", "bias_gain": 3.0},
        {"alibi_slopes": "two-sided", "bias_gain": 3.0},
        {"alibi_slopes": "two-sided", "bidirectional": False},
    ),
    "deberta": (
        *({"clipping_distance": 2, **terms} for terms in ({"share_key_projection": True}, *ONE_TERM, PAPER)),
        *({**SHARED_PROJECTION, **terms} for terms in ({}, *ONE_TERM)),
        {**LOG_BUCKETS, **PAPER},
    ),
    **dict.fromkeys(("diet_rel", "huang2"), ({"clipping_distance": 0}, {"clipping_distance": 2, **GAINED})),
    **dict.fromkeys(("huang3", "huang4"), CLIPPED),
    **dict.fromkeys(("kerple_log", "kerple_power"), (GAINED,)),
    **dict.fromkeys(("transformer_xl", "xlnet"), ({"query_biases": False},)),  # xlnet with segments: see IN_MODELS
    "diet_abs": (SMALL_TABLES,),
    "diet_abs_lin": ({"projection_length": 2, **SMALL_TABLES}, {"projection_length": 40}),
    "fire": (
        {"fire_threshold": 3.0, "position_sharing": "head"},  # shorter than some sentences and longer than others
        {"fire_threshold": 3.0, "bidirectional": False},
    ),
    "forget": ({"bidirectional": False},),
    "gated_t5": ({**FEW_BUCKETS, **GAINED}, {"bidirectional": False}),
    "huang1": ({"max_positions": 20, **GAINED},),
    "learned_qk": ({"max_positions": 20},),
    "linformer": ({"projection_length": 2, "max_positions": 20}, {"projection_length": 40}),
    "relative_key": ({"left_clip": 0}, {"left_clip": 2, "right_clip": 0, "position_sharing": "none"}),
    "rotary": (
        {"cross_start": "after-source"},
        {"rotary_layout": "half", "rotary_fraction": 0.5},
        {"rotary_base": 100.0, "rotary_linear_scale": 1.5},
        {"rotary_ntk_scale": 4.0},
        {"xpos": True, "bidirectional": False, "rotary_layout": "half", "rotary_linear_scale": 1.5},
    ),
    "shaw": (
        *(*CLIPPED, {"clipping_distance": 2, "urpe": True}),
        *({"relative_keys": False}, {"relative_values": False}, {"relative_keys": False, "relative_values": False}),
    ),
    "t5": ({**FEW_BUCKETS, **GAINED}, {"bidirectional": False, "urpe": True}),
    "tupe_abs": ({"untie_first_token": True, "max_positions": 20},),
    "tupe_rel": (
        {**FEW_BUCKETS, "max_positions": 20},
        {"bidirectional": False, "untie_first_token": True, "bias_gain": "auto"},
    ),
}


def _parameters(variants: list[Variant]) -> list[Any]:
    return [
        pytest.param(name, options, id="-".join([name, *(f"{key}={value}" for key, value in options.items())]))
        for name, options in variants
    ]


def make_encoding(
    name: str, options: dict[str, Any], heads: int = 2, dim: int = 4, dtype: torch.dtype = torch.float64, std: float = 1
) -> Any:
    """An encoding whose parameters are so large that a missing term changes the output; the same in every precision."""
    torch.manual_seed(1)
    encoding = build_encoding(name, heads, dim, **options).double()
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return converted(encoding, dtype)


def make_qkv(
    batch: int, keys: int, queries: int | None = None, heads: int = 2, dim: int = 4, dtype: torch.dtype = torch.float64
) -> list[torch.Tensor]:
    """Random queries, keys and values; as many queries as keys by default."""
    torch.manual_seed(2)
    return [torch.randn(batch, heads, length, dim, dtype=dtype) for length in (queries or keys, keys, keys)]


def causal_mask(length: int) -> torch.Tensor:
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def padding_mask(lengths: Sequence[int], left: bool, width: int | None = None) -> torch.Tensor:
    """The mask of a batch of sentences of these lengths, as wide as the longest by default."""
    columns, ends = torch.arange(width or max(lengths)), torch.tensor(lengths)[:, None]
    return columns < len(columns) - ends if left else columns >= ends


def converted(encoding: PositionEncoding, dtype: torch.dtype, device: str = "cpu") -> PositionEncoding:
    """Moves the encoding to this precision and device, and binds it to two fixed projections, as attention does."""
    torch.manual_seed(7)
    width = encoding.num_heads * encoding.head_dim
    query, key = (torch.nn.Linear(width, width, dtype=torch.float64).to(device, dtype) for _ in range(2))
    encoding = encoding.to(device, dtype)
    encoding.read_layer(torch.zeros(1, 1, width, dtype=dtype, device=device), (query, key))
    return encoding


@torch.no_grad()
def output_of_first_half(
    encoding: Any, length: int, dtype: torch.dtype, later: float, backend: str = "auto", device: str = "cpu"
) -> torch.Tensor:
    """A decoder's output for the first half of the tokens; all others are multiplied by `later`."""
    q, k, v = (2 * x for x in make_qkv(1, length, heads=encoding.num_heads, dim=encoding.head_dim))
    q, k, v, x = (tensor.to(device, dtype) for tensor in (q, k, v, torch.randn(1, length, q[0, :, 0].numel())))
    for tensor in (k, v, x):
        tensor[..., length // 2 :, :] *= later
    mask = torch.full((length, length), -torch.inf, device=device).triu(1)  # as fairseq's
    output, _ = attend(q, k, v, encoding, attn_mask=mask, backend=backend, layer_input=x)
    assert output.isfinite().all()
    return output[:, :, : length // 2]


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
        ("shaw", {"cross_position_encoding": "learned_qk", "clipping_distance": 2}),
        ("rotary", {"cross_position_encoding": "rotary:cross_start=after-source"}),
        ("t5", {"cross_position_encoding": "shaw:clipping_distance=2,sinusoidal_qk", "segment_separator": "w3"}),
        ("shaw", {"cross_position_encoding": "rotary,rotary:cross_start=after-source"}),
        ("shaw", {"cross_position_encoding": "t5,nopos"}),
        ("nopos", {"source_position_encoding": "shaw,nopos", "target_position_encoding": "t5,t5:num_buckets=8"}),
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
