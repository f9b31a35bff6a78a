"""Options of encodings: their parsing, and the options that several encodings have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from ...errors import FlagError


@dataclass(frozen=True)
class Option:
    """An option of an encoding: a keyword of its constructor and, unless the model sets it, a flag of fairseq-train.

    Encodings with an option of the same name share all but its default.
    """

    parse: Callable[[Any], Any]
    help: str
    choices: tuple[Any, ...] | None = None
    #: whether it is a flag; otherwise the model sets it for encoder, decoder and cross-attention
    is_flag: bool = True
    #: whether it is set at test time, by --model-overrides of fairseq-generate; then it is no flag, and no checkpoint
    #: records it
    at_test: bool = False
    #: whether it has an effect in a decoder only
    in_decoder_only: bool = False
    #: whether it has an effect in cross-attention only
    in_cross_attention_only: bool = False
    #: None if it depends on the number or width of heads
    default: Any = field(default=None, compare=False)
    #: its name, if it is not that of the encoding's attribute with its value
    name: str = field(default="", compare=False)
    attribute: str = field(default="", compare=False)


def parse_bool(text: Any) -> bool:
    """Parses true or false, as typed on a command line or in YAML."""
    try:
        return {"true": True, "false": False}[str(text).lower()]
    except KeyError:
        raise ValueError(f"must be true or false, not {text!r}") from None


def integer(value: Any) -> int:
    """Parses a whole number, as typed on a command line or in YAML."""
    try:
        return int(str(value))  # str: int(4.5) and int(True) would succeed
    except ValueError:
        raise ValueError(f"must be a whole number, not {value!r}") from None


#: the largest number of an option: whole numbers beyond it are not exact in single precision, as positions are
MOST = 2**24


@cache  # so that equal parsers are one, and options of one name can be compared
def whole(least: int) -> Callable[[Any], int]:
    """A parser of whole numbers from ``least`` to MOST."""

    def parse(value: Any) -> int:
        number = integer(value)
        if number < least:
            raise ValueError(f"must be {least} or more, not {number}")
        if number > MOST:
            raise ValueError(f"must be at most {MOST}, not {number}")
        return number

    return parse


def positive(value: Any) -> float:
    """Parses a finite number greater than 0."""
    number = float(str(value))
    if not 0 < number < math.inf:
        raise ValueError(f"must be more than 0 and finite, not {value}")
    return number


def parse_gain(value: Any) -> float | str:
    """Parses ``auto`` or a positive number, as typed on a command line or in YAML."""
    try:
        return value if value == "auto" else positive(value)
    except ValueError:
        raise ValueError(f"must be auto or a positive number, not {value!r}") from None


@cache
def finite(least: float) -> Callable[[Any], float]:
    """A parser of finite numbers of at least ``least``."""

    def parse(value: Any) -> float:
        number = float(str(value))
        if not least <= number < math.inf:
            raise ValueError(f"must be a finite number of at least {least:g}, not {value}")
        return number

    return parse


def option(default: Any, kind: Option | Callable[[Any], Any], *more: Any, name: str = "", **fields: Any) -> Any:
    """Declares an option in the body of an encoding's class.

    As in ``clipping_distance: int = option(16, CLIPPING_DISTANCE)`` or, if it is no other encoding's,
    ``left_clip: int = option(64, whole(0), "distances to the left beyond L are clipped to L")``. The constructor of
    :class:`.base.PositionEncoding` takes it as a keyword argument and makes it an attribute.

    Args:
        default: None if it depends on the number or width of heads.
        kind: an option of other encodings; or ``parse``, followed by the other arguments of :class:`Option`.
        name: of the option, if the attribute's is another because a parameter is called like the option.
    """
    chosen = kind if isinstance(kind, Option) else Option(kind, *more, **fields)
    return replace(chosen, default=default, name=name)


SHARING = ("none", "head", "layer", "all")
SHARED_BY_HEADS = ("head", "all")
SHARED_BY_LAYERS = ("layer", "all")

# Options of several encodings: one flag with one meaning.
CLIPPING_DISTANCE = Option(
    whole(0), "distances beyond K are clipped to K (Shaw et al.'s k); with 0 all distances are the same"
)
POSITION_SHARING = Option(
    str,
    "which position parameters are shared: none (a table for each layer and head), head (the heads of a layer share a "
    "table), layer (all layers share a table, which differs by head), all (all layers and heads share a table); "
    "encoder and decoder never share",
    SHARING,
)
NUM_BUCKETS = Option(integer, "number of distance buckets; in the encoder both directions together")
MAX_DISTANCE = Option(integer, "distances from this one on share the last bucket")

DEFAULT_NUM_SEGMENTS = 2
NUM_SEGMENTS = Option(
    whole(1),
    f"number of segments, {DEFAULT_NUM_SEGMENTS} by default; later segments are treated as the last one",
)
BIAS_GAIN = Option(
    parse_gain,
    "constant factor G on learned scalars in the logits and on learned input positions: a positive number, or auto for "
    "the square root of the width (of a head for scalars, of the embeddings for input positions); 1 by default, as in "
    "the papers; it changes how fast they learn, not their initial effect",
)
URPE = Option(
    parse_bool,
    "multiply the weights after the softmax by a learned factor for each head and distance, in stacks whose encoding "
    "adds a bias to the logits: true or false (the default)",
)

# Set by the model for encoder, decoder and cross-attention, not by the user.
BIDIRECTIONAL = Option(parse_bool, "whether queries attend to later keys: not in a decoder", is_flag=False)
MAX_POSITIONS = Option(
    whole(1), "longest sequence: --max-source-positions or --max-target-positions of the model", is_flag=False
)


def flags_of(options: dict[str, Option]) -> dict[str, Option]:
    """The options that are flags."""
    return {name: option for name, option in options.items() if option.is_flag}


def flag(option: str) -> str:
    """The flag of an option: ``clipping_distance`` is ``--clipping-distance``."""
    return "--" + option.replace("_", "-")


def spelled(name: str, option: Option) -> str:
    """An option as a user writes it: a flag, or a keyword of ``build_encoding``."""
    return flag(name) if option.is_flag else name


def parse_option(name: str, option: Option, value: Any) -> Any:
    """Parses the value of an option.

    Raises:
        FlagError: the value is invalid.
    """
    try:
        parsed = option.parse(value)
    except (TypeError, ValueError) as error:
        raise FlagError(f"{spelled(name, option)} {value!r}: {error}") from None
    if option.choices and parsed not in option.choices:
        raise FlagError(f"{spelled(name, option)} must be one of {', '.join(option.choices)}, not {value!r}.")
    return parsed
