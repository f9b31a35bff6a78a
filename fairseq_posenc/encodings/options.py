"""Options of encodings: how they are parsed and typed, and those that several encodings have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import FlagError
from .shared.gain import parse_gain


@dataclass(frozen=True)
class Option:
    """One option of an encoding: a keyword of its constructor and, unless the model decides it, a flag of
    fairseq-train.
    """

    parse: Callable[[Any], Any]
    help: str
    choices: tuple[Any, ...] | None = None
    #: whether it is a flag; else the model sets it for each place of attention
    is_flag: bool = True


def parse_bool(text: Any) -> bool:
    """true or false, as typed on a command line or in YAML."""
    try:
        return {"true": True, "false": False}[str(text).lower()]
    except KeyError:
        raise ValueError(f"say true or false, not {text!r}") from None


def integer(value: Any) -> int:
    """A whole number, as typed on a command line or in YAML."""
    try:
        return int(str(value))  # of 4.5 or True, int() itself would make a number
    except ValueError:
        raise ValueError(f"say a whole number, not {value!r}") from None


def positive_integer(value: Any) -> int:
    """A whole number of at least 1."""
    number = integer(value)
    if number < 1:
        raise ValueError(f"it must be 1 or more, not {number}")
    return number


SHARING = ("none", "head", "layer", "all")
SHARED_BY_LAYERS = ("layer", "all")

# Notions that several encodings have; one flag each, with one meaning.
CLIPPING_DISTANCE = Option(integer, "distances beyond K are clipped to K (Shaw et al.'s k); 0 means no order")
POSITION_SHARING = Option(
    str,
    "which position parameters are shared: none (own ones for each layer and head), head (one table for the heads of "
    "a layer), layer (one table for all layers of a stack, own rows for each head), all (one for a stack); encoder and "
    "decoder never share",
    SHARING,
)
NUM_BUCKETS = Option(integer, "buckets of distances; both directions together in the encoder")
MAX_DISTANCE = Option(integer, "distances from here on share the last bucket")

DEFAULT_NUM_SEGMENTS = 2
NUM_SEGMENTS = Option(
    positive_integer,
    f"segments that are told apart, {DEFAULT_NUM_SEGMENTS} by default; later ones count as the last",
)
BIAS_GAIN = Option(
    parse_gain,
    "a constant factor G on the learned scalars of the logits and on learned input positions, a positive number or "
    "auto, the square root of a head's width for those and of the embeddings' width for these; 1 by default, as in the "
    "papers; only the speed of learning changes",
)

# Set by the model for each place of attention, not by the user.
BIDIRECTIONAL = Option(parse_bool, "whether queries see keys after them: not in a decoder", is_flag=False)
MAX_POSITIONS = Option(
    positive_integer, "longest sequence: --max-source-positions or --max-target-positions of the model", is_flag=False
)


def flags_of(options: dict[str, Option]) -> dict[str, Option]:
    """The options that are flags."""
    return {name: option for name, option in options.items() if option.is_flag}


def flag(option: str) -> str:
    """The option as it is typed: ``clipping_distance`` is ``--clipping-distance``."""
    return "--" + option.replace("_", "-")


def spelled(name: str, option: Option) -> str:
    """An option as a user writes it: a flag, or a keyword of the constructor."""
    return flag(name) if option.is_flag else name


def parse_option(name: str, option: Option, value: Any) -> Any:
    """The value of an option, parsed.

    Raises:
        ValueError: it is not valid.
    """
    try:
        parsed = option.parse(value)
    except (TypeError, ValueError) as error:
        raise FlagError(f"{spelled(name, option)} {value!r}: {error}") from None
    if option.choices and parsed not in option.choices:
        raise FlagError(f"{flag(name)} must be one of {', '.join(option.choices)}, not {value!r}.")
    return parsed
