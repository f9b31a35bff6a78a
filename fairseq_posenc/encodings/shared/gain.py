"""The gain of learned scalars, ``--bias-gain``: a constant factor that makes them learn faster."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class LearnedScalars(nn.Module):
    r"""A module whose learned scalars, or vectors of them, act through a constant gain G.

    .. math:: w = w_0 + G (\theta - w_0)

    The parameter theta is what is learned and saved, w what acts; w_0 is the neutral value, 0 of a bias and 1 of a
    factor. An optimizer such as Adam moves theta by about the learning rate per update, whatever the gradient, and so
    w by G times as much. A subclass names its scalars and reads them by :meth:`effective`.
    """

    #: the neutral value of each parameter that is a learned scalar, by name; a parameter may be None
    scalars: ClassVar[dict[str, float]] = {}
    #: the gain's name in a checkpoint's record of positions
    recorded_as: ClassVar[str] = "bias_gain"
    bias_gain: float = 1.0

    def effective(self, name: str) -> Tensor:
        """w, of the shape of the parameter ``name``."""
        theta: Tensor = getattr(self, name)
        return stretched(theta, self.scalars[name], self.bias_gain)

    def set_gain(self, bias_gain: float) -> None:
        """Changes the gain, and theta so that w stays what it is."""
        for name in self.present_scalars():
            with torch.no_grad():
                theta = getattr(self, name)
                theta.copy_(stretched(theta, self.scalars[name], self.bias_gain / bias_gain))
        self.bias_gain = bias_gain

    def present_scalars(self) -> list[str]:
        """The names of the learned scalars that this module has."""
        return [name for name in self.scalars if getattr(self, name) is not None]


def stretched(x: Tensor, neutral: float, factor: float) -> Tensor:
    """x moved away from the neutral value, to ``factor`` times its distance; x itself where the factor is 1."""
    if factor == 1:
        return x
    return factor * x if neutral == 0 else neutral + factor * (x - neutral)


def modules_with_scalars(module: nn.Module) -> Iterator[tuple[str, LearnedScalars]]:
    """Every module inside that has learned scalars, with each of its names: a shared one has several."""
    for name, part in module.named_modules(remove_duplicate=False):
        if isinstance(part, LearnedScalars) and part.present_scalars():
            yield name, part


def parse_gain(value: Any) -> float | str:
    """``auto`` or a positive number, as typed on a command line or in YAML."""
    try:
        gain = value if value == "auto" else float(str(value))
    except ValueError:
        gain = None
    if gain != "auto" and (gain is None or not 0 < gain < math.inf):
        raise ValueError(f"say auto or a positive number, not {value!r}")
    return gain


def resolve_gain(bias_gain: float | str | None, width: int) -> float:
    """The number that is meant: ``auto`` is the square root of the width, None is 1. The width is that of a head for
    scalars in attention, that of the embeddings for vectors that are added to them.
    """
    if bias_gain == "auto":
        return math.sqrt(width)
    return 1.0 if bias_gain is None else float(bias_gain)
