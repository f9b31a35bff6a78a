"""The augmentation of a stack from the flags of its model."""

from __future__ import annotations

from typing import Any

from ..encodings import PositionEncoding
from ..errors import FlagError
from .effects import NO_EFFECT, effect
from .modes import Augmentation, Cape, Random, Shift
from .options import DEFAULTS, RANDOM_RANGE


def build_augmentation(cfg: Any, encoding: type[PositionEncoding], input_positions: str, longest: int) -> Augmentation:
    """Builds the augmentation of a stack.

    Args:
        longest: the model's maximum number of positions in this stack.

    Raises:
        FlagError: the range of ``random`` is longer than a table.
    """
    mode = cfg.position_augmentation
    if mode is None or effect(mode, encoding, input_positions) == NO_EFFECT:
        return Augmentation()
    given = {name: getattr(cfg, name) for name in DEFAULTS[mode]}
    values = {name: DEFAULTS[mode][name] if value is None else value for name, value in given.items()}
    table = longest if encoding.facts.reads == "integers" or input_positions == "learned" else None
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
