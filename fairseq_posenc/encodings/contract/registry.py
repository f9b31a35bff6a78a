"""The registry of encodings, which finds and builds them by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ...errors import FlagError
from .base import PositionEncoding
from .gain import modules_with_scalars, resolve_gain, set_gain
from .options import BIAS_GAIN, NUM_SEGMENTS, URPE, Option, flag, flags_of, parse_option, spelled
from .segments import SegmentAttention
from .urpe import ToeplitzFactors

ENCODINGS: dict[str, type[PositionEncoding]] = {}


def register_encoding(name: str) -> Callable[[type[PositionEncoding]], type[PositionEncoding]]:
    """Class decorator that registers an encoding under ``name``.

    The package makes architectures and flags of the encodings that are registered when it is imported: its own, and
    those of entry points.

    Raises:
        ValueError: the name is taken, the class is not a PositionEncoding, or an option differs from another
            encoding's.
    """

    def register(cls: type[PositionEncoding]) -> type[PositionEncoding]:
        if name in ENCODINGS:
            raise ValueError(f"the encoding {name!r} is already registered, by {ENCODINGS[name].__name__}.")
        if not (isinstance(cls, type) and issubclass(cls, PositionEncoding)):
            raise ValueError(f"{cls!r} must derive from PositionEncoding to be registered as {name!r}.")
        for option, meaning in cls.options.items():
            for other in ENCODINGS.values():
                if other.options.get(option, meaning) != meaning:
                    raise ValueError(
                        f"the option {option!r} of {name!r} is defined differently by {other.name!r}: use its Option, "
                        "since one flag has one meaning, or choose another name."
                    )
        cls.name = name
        ENCODINGS[name] = cls
        return cls

    return register


def known_options() -> dict[str, Option]:
    """Every option of every registered encoding."""
    return {name: option for cls in ENCODINGS.values() for name, option in cls.options.items()}


def default_options(cls: type[PositionEncoding]) -> dict[str, Any]:
    """The defaults of an encoding's options."""
    return {name: getattr(cls, option.attribute) for name, option in cls.options.items()}


def find_encoding(name: str) -> type[PositionEncoding]:
    """The class registered under ``name``.

    Raises:
        FlagError: there is none.
    """
    if name not in ENCODINGS:
        near = "".join(f" (did you mean {one}?)" for one in get_close_matches(name, ENCODINGS, 1))
        raise FlagError(f"there is no position encoding {name!r}{near}; use one of {', '.join(sorted(ENCODINGS))}.")
    return ENCODINGS[name]


def build_encoding(
    name: str,
    num_heads: int,
    head_dim: int,
    num_segments: int | None = None,
    bias_gain: float | str | None = None,
    urpe: bool = False,
    **options: Any,
) -> PositionEncoding:
    """Builds an encoding by its registered name.

    Args:
        name: for example "shaw".
        num_heads: H.
        head_dim: d, the width of one head.
        num_segments: adds segment attention with this number of segments.
        bias_gain: a positive factor on learned scalars, or "auto" for sqrt(head_dim); 1 by default.
        urpe: adds URPE, learned factors by distance on the weights.
        options: options of the encoding; None, like a missing option, means the default.

    Raises:
        FlagError: there is no such encoding or option, or a value is invalid.
    """
    cls = find_encoding(name)
    values = {}
    for option, value in options.items():
        if option not in cls.options:
            own = ", ".join(spelled(known, meaning) for known, meaning in cls.options.items()) or "none"
            raise FlagError(f"{name} has no option {flag(option)} (its options: {own}); leave it out.")
        if value is not None:
            values[option] = parse_option(option, cls.options[option], value)
    for option, reason in cls.facts.idle_options(values).items():
        if option in values:
            raise FlagError(f"{flag(option)} has no meaning for {name} {reason}: leave it out.")
    encoding = cls(num_heads, head_dim, **values)
    if num_segments is not None:
        _add_segments(encoding, parse_option("num_segments", NUM_SEGMENTS, num_segments))
    if parse_option("urpe", URPE, urpe):
        if not supports_urpe(cls):
            raise FlagError(
                f"--urpe has no meaning for {name}, which adds no bias to the logits of single keys: leave it out."
            )
        encoding.urpe = ToeplitzFactors(num_heads)
    if bias_gain is not None:
        add_gain(encoding, parse_option("bias_gain", BIAS_GAIN, bias_gain))
    return encoding


def _add_segments(encoding: PositionEncoding, num_segments: int) -> None:
    """Adds segment attention, unless the encoding has one of its own."""
    if encoding.facts.projects_length:
        raise FlagError(
            f"{encoding.name} does not support segments, since it attends to mixtures of all keys: leave "
            "--segment-separator out."
        )
    if not encoding.needs_segments:
        encoding.segments = SegmentAttention(encoding.num_heads, num_segments)
        encoding.needs_segments = True


def supports_urpe(cls: type[PositionEncoding]) -> bool:
    """Whether it adds a bias to the logits of single keys, so that it can be combined with URPE."""
    return "bias" in cls.hooks and not cls.facts.projects_length


def has_scalars(encoding: PositionEncoding) -> bool:
    """Whether learned scalars act on the logits or weights, those of segments and URPE included."""
    return any(modules_with_scalars(encoding))


def add_gain(encoding: PositionEncoding, bias_gain: float | str) -> None:
    """Sets the gain of all learned scalars without changing their initial effect.

    Args:
        bias_gain: a positive number, or "auto" for sqrt(head_dim).

    Raises:
        FlagError: the encoding has no learned scalars.
    """
    if not has_scalars(encoding):
        raise FlagError(
            f"--bias-gain has no meaning for {encoding.name}, which learns no scalars in attention: leave it out."
        )
    for _, module in modules_with_scalars(encoding):
        set_gain(module, resolve_gain(bias_gain, encoding.head_dim))


@dataclass(frozen=True)
class Choice:
    """An encoding that was chosen for a layer, with the options that are for this layer only.

    Args:
        options: pairs of name and value, sorted.
    """

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def cls(self) -> type[PositionEncoding]:
        return find_encoding(self.name)


def names_in(text: str) -> list[str]:
    """The names of encodings as typed in a flag, which may be names of none."""
    return [part.strip().partition(":")[0] for part in text.split(",")]


def parse_choices(text: str) -> tuple[Choice, ...]:
    """Parses encodings as typed in a flag: ``shaw``, ``shaw:clipping_distance=8``, or by layer, ``shaw,nopos``.

    Raises:
        FlagError: there is no such encoding or option, or a value is invalid.
    """
    choices = []
    for part in text.split(","):
        name, *settings = part.strip().split(":")
        known = flags_of(find_encoding(name).options)
        options = {}
        for setting in settings:
            key, equals, value = setting.partition("=")
            key = key.replace("-", "_")
            if key not in known or not equals:
                listed = ", ".join(f"{option}=VALUE" for option in known) or "none"
                raise FlagError(f"{part}: {setting!r} is no option of {name}, which are written so: {listed}.")
            if key in options:
                raise FlagError(f"{part}: {key} is given twice; leave one of them out.")
            options[key] = parse_option(key, known[key], value)
        choices.append(Choice(name, tuple(sorted(options.items()))))
    return tuple(choices)
