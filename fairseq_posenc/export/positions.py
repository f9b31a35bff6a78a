"""Maps each position encoding to CTranslate2's; an encoding is exportable if CONVERTERS has a function for it.

CTranslate2's attention supports three kinds of encodings, which all layers of a stack must have in common, and which
exclude positions added to the embeddings:

* vectors of the clipped distance on keys and values, one table for all heads of a layer (Shaw);
* a scalar for each head and bucket of distances (T5);
* rotary encoding; in a decoder also ALiBi.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from ctranslate2.specs.attention_spec import RotaryScalingType
from torch import Tensor

from ..encodings import PositionEncoding
from ..encodings.contract.gain import present_scalars
from ..errors import ExportError


@dataclass(frozen=True)
class ExportedEncoding:
    """The encoding of one layer in CTranslate2's terms."""

    #: keyword arguments of CTranslate2's encoder and decoder specifications that enable the encoding
    options: dict[str, Any]
    #: its tables, by their attribute in CTranslate2's specification of attention; None removes the attribute
    tables: dict[str, Any] = field(default_factory=dict)


def export_encoding(encoding: PositionEncoding, in_decoder: bool, at_input: bool) -> ExportedEncoding:
    """Converts an encoding to CTranslate2's terms.

    Args:
        in_decoder: whether the encoding is in a decoder.
        at_input: whether the stack adds positions to the embeddings too.

    Raises:
        ExportError: CTranslate2 does not support it.
    """
    if encoding.name not in CONVERTERS:
        raise refusal(encoding.name, "its attention has no such positions; docs/serving.md lists those that it has")
    if encoding.segments is not None:
        raise refusal("segments", "CTranslate2 has no segment attention; train without --segment-separator")
    if encoding.urpe is not None:
        raise refusal("urpe", "CTranslate2 cannot multiply the weights after the softmax; train without --urpe")
    converter = CONVERTERS[encoding.name]
    if not at_input:
        return converter(encoding, in_decoder)
    if converter is not without_encoding:
        why = "CTranslate2 has positions in attention or at the input, not in both; train with --input-positions none"
        raise refusal(f"{encoding.name} on input positions", why)
    return ExportedEncoding({})


def refusal(what: str, why: str) -> ExportError:
    return ExportError(f"CTranslate2 does not support {what}: {why}.")


def without_encoding(encoding: PositionEncoding, in_decoder: bool) -> ExportedEncoding:
    """Biases of zero, for a stack without input positions: CTranslate2 would otherwise add sinusoids."""
    return biases(torch.zeros(encoding.num_heads, 1), in_decoder)


def shaw(encoding: Any, in_decoder: bool) -> ExportedEncoding:
    keys, values = encoding.relative_keys, encoding.relative_values
    if keys is None and values is None:
        return without_encoding(encoding, in_decoder)
    # CTranslate2 reads the clipping distance from the keys' table, so values without keys need a table of zeros.
    return vectors(encoding, torch.zeros_like(values) if keys is None else keys, values)


def relative_key(encoding: Any, in_decoder: bool) -> ExportedEncoding:
    """Converts it to Shaw's, with equally many rows on both sides; CTranslate2's own option is wrong in a decoder."""
    left, right = encoding.left_clip, encoding.right_clip
    rows = torch.arange(-max(left, right), max(left, right) + 1).clamp(-left, right) + left
    return vectors(encoding, encoding.relative_keys[:, rows], None)


def diet_rel(encoding: Any, in_decoder: bool) -> ExportedEncoding:
    return biases(encoding.effective("relative_bias").expand(encoding.num_heads, -1), in_decoder)


def t5(encoding: Any, in_decoder: bool) -> ExportedEncoding:
    by_distance = encoding.effective("relative_bias")[:, encoding.buckets]
    return biases(by_distance.expand(encoding.num_heads, -1), in_decoder)


def rotary(encoding: Any, in_decoder: bool) -> ExportedEncoding:
    if encoding.decays:
        raise refusal("rotary with --xpos", "CTranslate2's rotations do not change lengths; train without --xpos")
    return ExportedEncoding(
        {
            "rotary_dim": encoding.rotary_dim,
            "rotary_interleave": encoding.rotary_layout == "interleaved",
            "rotary_base": encoding.scaled_base,
            "rotary_scaling_type": RotaryScalingType.Linear,
            "rotary_scaling_factor": encoding.rotary_linear_scale,
        }
    )


def alibi(encoding: Any, in_decoder: bool) -> ExportedEncoding:
    if not in_decoder:
        raise refusal(
            "alibi in an encoder",
            "CTranslate2 has ALiBi in a decoder only; train with another --source-position-encoding",
        )
    if present_scalars(encoding):
        raise refusal(
            "alibi with learned slopes", "CTranslate2 has the paper's slopes; train with --alibi-slopes fixed"
        )
    return ExportedEncoding({"alibi": True})


#: by name of the encoding: (encoding, whether it is in a decoder) to the exported encoding
CONVERTERS: dict[str, Callable[[Any, bool], ExportedEncoding]] = {
    **dict.fromkeys(("nopos", "sinusoidal", "learned"), without_encoding),
    "shaw": shaw,
    "relative_key": relative_key,
    "diet_rel": diet_rel,
    "t5": t5,
    "rotary": rotary,
    "alibi": alibi,
}


def vectors(encoding: PositionEncoding, keys: Tensor, values: Tensor | None) -> ExportedEncoding:
    """Converts tables (1, 2K + 1, d) of vectors; row t is distance t - K, and distances beyond K are clipped.

    Raises:
        ExportError: each head has its own table.
    """
    if keys.size(0) != 1:
        raise refusal(
            f"{encoding.name} with a table for each head",
            "CTranslate2's heads share one table per layer; train with --position-sharing head",
        )
    return ExportedEncoding(
        {"relative_position": True},
        {
            "relative_position_keys": to_numpy(keys[0]),
            "relative_position_values": None if values is None else to_numpy(values[0]),
        },
    )


def biases(by_distance: Tensor, in_decoder: bool) -> ExportedEncoding:
    """Converts scalars (H, 2K + 1) to T5's buckets; column t is distance t - K, and distances beyond K are clipped.

    Of T5's buckets in one direction, the first half hold one distance each, and the second half are logarithmic. With
    2K buckets in a direction, where the second half all have the value of distance K, clipping is exact at any
    distance. In an encoder the buckets of the second direction follow those of the first, so there are 4K.
    """
    furthest = by_distance.size(1) // 2
    exact = max(furthest, 1)
    back = -torch.arange(2 * exact).clamp(max=furthest)
    distances = back if in_decoder else torch.cat([back, -back])
    return ExportedEncoding(
        {"relative_attention_bias": True},
        {
            "relative_attention_bias": to_numpy(by_distance[:, distances + furthest].T),
            "relative_attention_max_distance": np.int32(2 * exact),
        },
    )


def to_numpy(table: Tensor) -> np.ndarray:
    return np.ascontiguousarray(table.detach().float().numpy())
