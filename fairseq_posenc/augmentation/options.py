"""The flags of position augmentation, their defaults, and what of them is part of an experiment's identity."""

from __future__ import annotations

from typing import Any

from ..encodings.contract.options import Option, finite, whole

MODES = ("shift", "random", "cape")
#: the longest range; ``random`` draws a number for each of its positions and each sentence
MOST_POSITIONS = 2**24
#: the range of ``random`` without tables, the authors'
RANDOM_RANGE = 2048
SHIFT = {"position_augmentation_max": 500}
CAPE = {"cape_global_shift": 5.0, "cape_local_shift": 0.5, "cape_scale": 1.03}
#: the flags of each mode and their defaults; a default of None depends on the encoding
DEFAULTS: dict[str, dict[str, Any]] = {
    "shift": SHIFT,
    "random": {"position_augmentation_max": None},
    "cape": CAPE,
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
        whole(1, MOST_POSITIONS),
        f"K of --position-augmentation shift, {SHIFT['position_augmentation_max']} by default; of random the length of "
        f"the range, {RANDOM_RANGE} by default, or that of the encoding's tables",
    ),
    "cape_global_shift": Option(
        finite(0),
        f"CAPE shifts all positions of a sentence by up to this much, {CAPE['cape_global_shift']:g} by default",
    ),
    "cape_local_shift": Option(
        finite(0), f"CAPE shifts each position by up to this much, {CAPE['cape_local_shift']:g} by default"
    ),
    "cape_scale": Option(
        finite(1), f"CAPE scales positions by a factor between 1/s and s, {CAPE['cape_scale']:g} by default"
    ),
}


def describe_augmentation(args: Any) -> dict[str, Any]:
    """The mode and its flags without those at their defaults, for an experiment's identity; empty without a mode."""
    mode = args.position_augmentation
    if mode is None:
        return {}
    values = {name: (getattr(args, name), default) for name, default in DEFAULTS[mode].items()}
    return {"position_augmentation": mode} | {
        name: value for name, (value, default) in values.items() if value is not None and value != default
    }
