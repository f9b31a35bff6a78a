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

from .arguments import SIDES, input_positions_of, layers_at, longest_at, stack_of
from .encodings import ENCODINGS, build_encoding
from .encodings.contract.gain import resolve_gain
from .encodings.contract.options import DEFAULT_NUM_SEGMENTS, flags_of
from .encodings.contract.registry import Choice, default_options, has_scalars, supports_urpe
from .errors import CheckpointError

#: fairseq's moving average of parameters (--store-ema) skips tensors with "version" in their name
POSITION_RECORD = "position_version"
DEFAULT_SINUSOIDS = "fairseq"


def describe_positions(args: Any) -> dict[str, Any]:
    """The encodings, options and input positions of a model, without values at their defaults."""
    source, target = (_describe_side(args, side) for side in SIDES)
    description = source if source == target else {**source, "target": target}
    if cross := _describe_place(args, "cross"):
        same = layers_at(args, "cross") == layers_at(args, "target")
        description |= {"cross_attention_positions": True} if same else {"cross": cross}
    if args.segment_separator is not None:
        description |= {"segment_separator": args.segment_separator, "num_segments": args.num_segments}
    description |= {name: value for name in ("segment_shift", "length_encoding") if (value := getattr(args, name))}
    return without_defaults(description)


def _describe_side(args: Any, side: str) -> dict[str, Any]:
    """The encodings of a stack, and its input positions."""
    kind = input_positions_of(args, side)
    described = {**_describe_place(args, side), "input_positions": kind}
    if kind == "sinusoidal":
        described["sinusoids"] = args.sinusoids or DEFAULT_SINUSOIDS
    if kind == "learned":
        described["input_gain"] = resolve_gain(args.bias_gain, getattr(args, f"{stack_of(side)}_embed_dim"))
    return described


def _describe_place(args: Any, place: str) -> dict[str, Any]:
    """The encoding of all layers of a place, or those of its ``layers``; nothing for a place without positions."""
    layers = [_describe_choice(args, choice, place) for choice in layers_at(args, place)]
    if not layers:
        return {}
    return layers[0] if len(layers) == 1 else {"layers": layers}


def _describe_choice(args: Any, choice: Choice, place: str) -> dict[str, Any]:
    options, flags = dict(choice.options), flags_of(choice.cls.options)
    described: dict[str, Any] = {"encoding": choice.name}
    described |= {option: value for option, value in options.items() if option in flags}
    longest = longest_at(args, place)
    if longest is not None and "max_positions" in choice.cls.options:
        described["max_positions"] = longest
    width, heads = (getattr(args, f"{stack_of(place)}_{size}") for size in ("embed_dim", "attention_heads"))
    if args.urpe and supports_urpe(choice.cls):
        described["urpe"] = True
    with torch.device("meta"):  # draws no random numbers
        learns_scalars = has_scalars(build_encoding(choice.name, heads, width // heads, **options))
    if learns_scalars or args.segment_separator is not None or "urpe" in described:
        described["bias_gain"] = resolve_gain(args.bias_gain, width // heads)
    return described


def without_defaults(description: Mapping[str, Any]) -> dict[str, Any]:
    """Removes values at their defaults from a description of positions, unless its encoding is not registered."""
    cls = ENCODINGS.get(description.get("encoding", ""))
    defaults: dict[str, Any] = {"num_segments": DEFAULT_NUM_SEGMENTS, "bias_gain": 1, "input_gain": 1}
    defaults["sinusoids"] = DEFAULT_SINUSOIDS
    if "layers" in description:
        defaults["input_positions"] = "none"
    if cls is not None:
        defaults |= {"input_positions": cls.facts.input_positions, **default_options(cls)}
    stated = {key: value for key, value in description.items() if key not in defaults or value != defaults[key]}
    for nested in ("target", "cross"):
        if isinstance(stated.get(nested), dict):
            stated[nested] = without_defaults(stated[nested])
    if "layers" in stated:
        stated["layers"] = [without_defaults(layer) for layer in stated["layers"]]
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


def module_record(record: dict[str, Any], module: str) -> dict[str, Any]:
    """What a record says about a module of the model, by its name.

    A stack has the description of its side, ``encoder_attn`` that of cross-attention, and a layer its own, if the
    layers differ.
    """
    stack, *inside = module.split(".")
    described: dict[str, Any] = record if stack == "encoder" else record.get("target", record)
    if "encoder_attn" in inside and not record.get("cross_attention_positions"):
        described = record.get("cross", {})
    if "layers" in inside and "layers" in described:
        number = int(inside[inside.index("layers") + 1])
        described = dict(enumerate(described["layers"])).get(number, {})  # the model may have more layers
    return described


def related_encodings(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the encodings of two records are the same, or one extends the other, as gated_t5 extends t5."""
    names = one.get("encoding", ""), other.get("encoding", "")
    a, b = map(ENCODINGS.get, names)
    return names[0] == names[1] or bool(a and b and (issubclass(a, b) or issubclass(b, a)))
