"""The flags of position augmentation, what each mode does with each encoding, and the augmentation of a stack."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..encodings import PositionEncoding
from ..encodings.contract.options import Option, finite, whole
from ..errors import FlagError
from .modes import Augmentation, Cape, Random, SegmentShift, Shift

MODES = ("shift", "random", "cape")
#: the range of ``random`` without tables, the authors'
RANDOM_RANGE = 2048
#: the flags of each mode and their defaults; a default of None depends on the encoding
DEFAULTS: dict[str, dict[str, Any]] = {
    "shift": {"position_augmentation_max": 500},
    "random": {"position_augmentation_max": None},
    "cape": {"cape_global_shift": 5.0, "cape_local_shift": 0.5, "cape_scale": 1.03},
}

FLAGS = {
    "position_augmentation": Option(
        str,
        "positions in training: none (the default; 0, 1, 2, ...), shift (SHAPE: all positions of a sentence are k "
        "higher, k uniform in 0..K), random (an ordered random subset of a longer range, at evaluation too), cape "
        "(real numbers: shifted, each moved a little, and scaled)",
        ("none", *MODES),
    ),
    "position_augmentation_max": Option(
        whole(1),
        f"K of --position-augmentation shift, 500 by default; of random the length of "
        f"the range, {RANDOM_RANGE} by default, or that of the encoding's tables",
    ),
    "cape_global_shift": Option(
        finite(0),
        "CAPE shifts all positions of a sentence by up to this much, 5 by default",
    ),
    "cape_local_shift": Option(finite(0), "CAPE shifts each position by up to this much, 0.5 by default"),
    "cape_scale": Option(finite(1), "CAPE scales positions by a factor between 1/s and s, 1.03 by default"),
}


WORKS, NO_EFFECT, UNDEFINED = "works with", "has no effect on", "is not defined for"


def effect(mode: str, encoding: type[PositionEncoding], input_positions: str) -> str:
    """What a mode does in a stack: WORKS, NO_EFFECT or UNDEFINED.

    Args:
        input_positions: "none", "sinusoidal" or "learned".
    """
    at_input = input_positions != "none"
    if not at_input and encoding.facts.reads == "nothing":
        return NO_EFFECT
    if mode == "shift":
        return WORKS if at_input or encoding.facts.reads in ("integers", "reals") else NO_EFFECT
    if encoding.facts.reads == "distances":
        return UNDEFINED
    if mode == "cape" and (encoding.facts.reads == "integers" or input_positions == "learned"):
        return UNDEFINED
    return WORKS


def combined(effects: Collection[str]) -> str:
    """The effect in a model whose stacks have these effects."""
    if UNDEFINED in effects:
        return UNDEFINED
    return WORKS if WORKS in effects else NO_EFFECT


def build_augmentation(
    cfg: Any, encodings: Sequence[type[PositionEncoding]], input_positions: str, longest: int
) -> Augmentation:
    """Builds the augmentation of a stack.

    Args:
        longest: the model's maximum number of positions in this stack.

    Raises:
        FlagError: the range of ``random`` is longer than a table.
    """
    mode = cfg.position_augmentation
    reads_integers = any(encoding.facts.reads == "integers" for encoding in encodings)
    table = longest if reads_integers or input_positions == "learned" else None
    if cfg.segment_shift:
        return SegmentShift(cfg.segment_shift, table)
    if mode is None or combined([effect(mode, encoding, input_positions) for encoding in encodings]) == NO_EFFECT:
        return Augmentation()
    given = {name: getattr(cfg, name) for name in DEFAULTS[mode] if getattr(cfg, name) is not None}
    values = DEFAULTS[mode] | given
    if mode == "cape":
        return Cape(values["cape_global_shift"], values["cape_local_shift"], values["cape_scale"])
    most = values["position_augmentation_max"]
    if mode == "shift":
        return Shift(most, table)
    most = most or table or RANDOM_RANGE
    if table is not None and most > table:
        raise FlagError(
            f"--position-augmentation-max {most} is more than the {table} positions that tables have here: use at most "
            f"{table}, or set --max-source-positions and --max-target-positions to {most} or more."
        )
    return Random(most, table)
