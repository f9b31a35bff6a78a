"""``position_version``, the record of positions in a checkpoint: encodings, options and input positions.

The record omits options at their defaults, so that it stays valid when an encoding gets a new option. Records of early
versions contain every option, so records are compared without defaults. The default of an option must never change: a
better value needs a new option or a new encoding.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .arguments import SIDES, encoding_of, input_positions_of, typed_options
from .encodings import ENCODINGS, build_encoding
from .encodings.contract.gain import resolve_gain
from .encodings.contract.options import DEFAULT_NUM_SEGMENTS, flags_of
from .encodings.contract.registry import default_options, has_scalars, supports_urpe
from .errors import CheckpointError

#: fairseq's moving average of parameters (--store-ema) skips tensors with "version" in their name
POSITION_RECORD = "position_version"
DEFAULT_SINUSOIDS = "fairseq"
STACKS = {"source": "encoder", "target": "decoder"}


def describe_positions(args: Any) -> dict[str, Any]:
    """The encodings, options and input positions of a model, without values at their defaults."""
    source, target = (_describe_side(args, side) for side in SIDES)
    description = source if source == target else {**source, "target": target}
    if args.cross_attention_positions:
        description["cross_attention_positions"] = True
    if args.segment_separator is not None:
        description |= {"segment_separator": args.segment_separator, "num_segments": args.num_segments}
    return without_defaults(description)


def _describe_side(args: Any, side: str) -> dict[str, Any]:
    name = encoding_of(args, side)
    typed, flags = typed_options(args, name), flags_of(ENCODINGS[name].options)
    described: dict[str, Any] = {"encoding": name, "input_positions": input_positions_of(args, side)}
    described |= {option: value for option, value in typed.items() if option in flags}
    longest = getattr(args, f"max_{side}_positions", None)
    if longest is not None and "max_positions" in ENCODINGS[name].options:
        described["max_positions"] = longest
    width, heads = (getattr(args, f"{STACKS[side]}_{of}") for of in ("embed_dim", "attention_heads"))
    if args.urpe and supports_urpe(ENCODINGS[name]):
        described["urpe"] = True
    if _learns_scalars(args, name, heads, width // heads) or args.segment_separator is not None or "urpe" in described:
        described["bias_gain"] = resolve_gain(args.bias_gain, width // heads)
    if described["input_positions"] == "sinusoidal":
        described["sinusoids"] = args.sinusoids or DEFAULT_SINUSOIDS
    if described["input_positions"] == "learned":
        described["input_gain"] = resolve_gain(args.bias_gain, width)
    return described


def _learns_scalars(args: Any, name: str, heads: int, width: int) -> bool:
    """Whether the encoding has learned scalars with these options."""
    with torch.device("meta"):  # draws no random numbers
        return has_scalars(build_encoding(name, heads, width, **typed_options(args, name)))


def without_defaults(description: Mapping[str, Any]) -> dict[str, Any]:
    """Removes values at their defaults from a description of positions, unless its encoding is not registered."""
    cls = ENCODINGS.get(description.get("encoding", ""))
    defaults: dict[str, Any] = {"num_segments": DEFAULT_NUM_SEGMENTS, "bias_gain": 1, "input_gain": 1}
    defaults["sinusoids"] = DEFAULT_SINUSOIDS
    if cls is not None:
        defaults |= {"input_positions": cls.facts.input_positions, **default_options(cls)}
    stated = {key: value for key, value in description.items() if key not in defaults or value != defaults[key]}
    if isinstance(stated.get("target"), dict):
        stated["target"] = without_defaults(stated["target"])
    return stated


def encode_record(description: Mapping[str, Any]) -> Tensor:
    """Encodes a description as the int64 bytes of JSON.

    Unlike other dtypes, int64 does not change with half precision or in fairseq's averaging of checkpoints.
    """
    return torch.tensor(list(json.dumps(description, sort_keys=True).encode()), dtype=torch.int64)


def parse_record(record: Any) -> dict[str, Any]:
    """Parses the description of positions in a record.

    Raises:
        CheckpointError: it is not a record of this package.
    """
    try:
        description: dict[str, Any] = json.loads(bytes(record.tolist()))
    except ValueError:  # not bytes, or not JSON in UTF-8
        raise CheckpointError(
            f"its {POSITION_RECORD} is not a record of positions; use a file that fairseq-train wrote."
        ) from None
    return description


def canonical_record(record: Tensor) -> str:
    """A record in canonical form: JSON with sorted keys and without defaults."""
    return json.dumps(without_defaults(parse_record(record)), sort_keys=True)


def stack_record(record: dict[str, Any], stack: str) -> dict[str, Any]:
    """What a record says about the encoder or the decoder."""
    described: dict[str, Any] = record if stack == "encoder" else record.get("target", record)
    return described


def related_encodings(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the encodings of two records are the same, or one extends the other, as gated_t5 extends t5."""
    names = one.get("encoding", ""), other.get("encoding", "")
    a, b = map(ENCODINGS.get, names)
    return names[0] == names[1] or bool(a and b and (issubclass(a, b) or issubclass(b, a)))
