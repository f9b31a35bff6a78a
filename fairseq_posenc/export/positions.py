"""Where CTranslate2 keeps each position encoding: one row here makes an encoding exportable.

Its attention has three places, each of which stands in all layers of a stack or in none, and in none of which positions
can be added to the embeddings as well:

* vectors of the clipped distance on keys and values, one table for all heads of a layer (Shaw);
* a scalar for each head and bucket of distances (T5);
* rotated queries and keys; in a decoder also ALiBi.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..encodings import PositionEncoding
from .errors import ExportError


@dataclass(frozen=True)
class Place:
    """Where the encoding of one layer goes."""

    #: keywords of CTranslate2's encoder and decoder specifications that make the place
    opened_by: dict[str, Any]
    #: what is put there, by the name that the specification of an attention gives it; None leaves that out
    holds: dict[str, Any] = field(default_factory=dict)


Row = Callable[[Any, bool], Place]
#: by the encoding's name: (encoding, whether it stands in a decoder) to its place
PLACES: dict[str, Row] = {}
#: why there is none, where that is known
REASONS: dict[str, str] = {
    **dict.fromkeys(("diet_abs", "tupe_abs", "tupe_rel"), "its biases know distances, not pairs of absolute positions"),
    **dict.fromkeys(("diet_abs_lin", "linformer"), "its encoder attends to the words, not to mixtures of them"),
    **dict.fromkeys(("transformer_xl", "xlnet"), "its vectors of distances are the same for all heads, not projected"),
    **dict.fromkeys(
        ("huang1", "huang2", "huang3"), "what a distance does there is added to the logits, not multiplied"
    ),
    **dict.fromkeys(("huang4", "deberta"), "its vectors of distances meet queries only, not keys"),
    "kerple_log": "its tables of biases end, and this bias grows with every distance",
}
NO_REASON = "it has no place for what this encoding does to attention"


def place_of(encoding: PositionEncoding, in_decoder: bool, at_input: bool) -> Place:
    """Where CTranslate2 keeps this encoding, in a stack that adds positions to the embeddings too, or does not.

    Raises:
        ExportError: nowhere.
    """
    if encoding.name not in PLACES:
        raise refusal(encoding.name, REASONS.get(encoding.name, NO_REASON))
    if encoding.segments is not None:
        raise refusal("segments", "it tells none apart; train without --segment-separator")
    row = PLACES[encoding.name]
    if not at_input:
        return row(encoding, in_decoder)
    if row is not nothing:
        why = "positions stand in attention or at the input there, not in both; train with --input-positions none"
        raise refusal(f"{encoding.name} on input positions", why)
    return Place({})


def refusal(what: str, why: str) -> ExportError:
    return ExportError(f"CTranslate2 cannot hold {what}: {why}.")


def register(*names: str) -> Callable[[Row], Row]:
    """Decorator: this function says where the encodings of these names go."""

    def add(row: Row) -> Row:
        PLACES.update(dict.fromkeys(names, row))
        return row

    return add


@register("nopos", "sinusoidal", "learned")
def nothing(encoding: PositionEncoding, in_decoder: bool) -> Place:
    """Only what is added to the embeddings, which the stack tells; where that is nothing, biases of zero stand in
    attention, for without any CTranslate2 would add sinusoids.
    """
    return biases(torch.zeros(encoding.num_heads, 1), in_decoder)


@register("shaw")
def shaw(encoding: Any, in_decoder: bool) -> Place:
    keys, values = encoding.relative_keys, encoding.relative_values
    if keys is None and values is None:
        return nothing(encoding, in_decoder)
    # The clipping distance is read from the keys' table, so that values alone need one of zeros.
    return vectors(
        of_all_heads(encoding, torch.zeros_like(values) if keys is None else keys),
        None if values is None else of_all_heads(encoding, values),
    )


@register("relative_key")
def relative_key(encoding: Any, in_decoder: bool) -> Place:
    """As Shaw's, with as many rows on both sides; CTranslate2's own place for it is wrong in a decoder."""
    left, right = encoding.left_clip, encoding.right_clip
    rows = torch.arange(-max(left, right), max(left, right) + 1).clamp(-left, right) + left
    return vectors(of_all_heads(encoding, encoding.relative_keys)[rows], None)


@register("diet_rel")
def diet_rel(encoding: Any, in_decoder: bool) -> Place:
    return biases(encoding.effective("relative_bias").expand(encoding.num_heads, -1), in_decoder)


@register("t5")
def t5(encoding: Any, in_decoder: bool) -> Place:
    by_distance = encoding.effective("relative_bias")[:, encoding.buckets]
    return biases(by_distance.expand(encoding.num_heads, -1), in_decoder)


@register("rotary")
def rotary(encoding: Any, in_decoder: bool) -> Place:
    return Place(
        {
            "rotary_dim": 0,  # all of a head
            "rotary_interleave": encoding.rotary_layout == "interleaved",
            "rotary_base": encoding.rotary_base,
        }
    )


@register("alibi")
def alibi(encoding: Any, in_decoder: bool) -> Place:
    if not in_decoder:
        raise refusal(
            "alibi in an encoder", "it has ALiBi in a decoder only; say --source-position-encoding with another"
        )
    return Place({"alibi": True})


def of_all_heads(encoding: PositionEncoding, table: Tensor) -> Tensor:
    """The table (rows, d) that all heads of a layer share.

    Raises:
        ExportError: each has its own.
    """
    if table.size(0) != 1:
        raise refusal(
            f"{encoding.name} with a table for each head",
            "the heads of a layer have one there; train with --position-sharing head",
        )
    return table[0]


def vectors(keys: Tensor, values: Tensor | None) -> Place:
    """Tables (2K + 1, d); row t is distance t - K, and distances beyond K clip."""
    return Place(
        {"relative_position": True},
        {
            "relative_position_keys": to_numpy(keys),
            "relative_position_values": None if values is None else to_numpy(values),
        },
    )


def biases(by_distance: Tensor, in_decoder: bool) -> Place:
    """A table (H, 2K + 1) of scalars, row t of which is distance t - K, as T5's buckets that hold one distance each.

    Half of a direction's buckets are such; the others are for distances from there on, by their logarithm. With 2K
    buckets a direction, and the value of K in all of the second half, distances beyond K clip exactly, however far. In
    an encoder the second direction's buckets follow the first's, so that the table has 4K rows.
    """
    furthest = by_distance.size(1) // 2
    exact = max(furthest, 1)
    back = -torch.arange(2 * exact).clamp(max=furthest)
    distances = back if in_decoder else torch.cat([back, -back])
    return Place(
        {"relative_attention_bias": True},
        {
            "relative_attention_bias": to_numpy(by_distance[:, distances + furthest].T),
            "relative_attention_max_distance": np.int32(2 * exact),
        },
    )


def to_numpy(table: Tensor) -> np.ndarray:
    return np.ascontiguousarray(table.detach().float().numpy())
