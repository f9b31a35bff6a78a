"""The gain of learned scalars, ``--bias-gain``: a constant factor so that they learn faster."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn


class LearnedScalars(nn.Module):
    r"""A module whose learned scalars, or vectors of them, are multiplied by a constant gain G.

    .. math:: w = w_0 + G (\theta - w_0)

    theta is the parameter in the checkpoint, w the effective value, and w_0 the neutral value: 0 for a bias, 1 for a
    factor. An optimizer such as Adam changes theta by about the learning rate per update, independent of the scale of
    the gradient, and w by G times as much. A subclass lists its scalars and reads them with :meth:`effective`.
    """

    #: the neutral value of each parameter that is a learned scalar, by name; a parameter may be None
    scalars: ClassVar[dict[str, float]] = {}
    bias_gain: float = 1.0

    def effective(self, name: str) -> Tensor:
        """The effective value w of the parameter ``name``."""
        theta: Tensor = getattr(self, name)
        return scale_around(theta, self.scalars[name], self.bias_gain)


def present_scalars(module: LearnedScalars) -> list[str]:
    """The names of a module's learned scalars that are not None."""
    return [name for name in module.scalars if getattr(module, name) is not None]


def set_gain(module: LearnedScalars, bias_gain: float) -> None:
    """Sets the gain, and changes theta so that w stays the same."""
    for name in present_scalars(module):
        with torch.no_grad():
            theta = getattr(module, name)
            theta.copy_(scale_around(theta, module.scalars[name], module.bias_gain / bias_gain))
    module.bias_gain = bias_gain


def scale_around(x: Tensor, neutral: float, factor: float) -> Tensor:
    """Scales the difference between x and the neutral value by ``factor``."""
    if factor == 1:
        return x
    return factor * x if neutral == 0 else neutral + factor * (x - neutral)


def modules_with_scalars(module: nn.Module) -> Iterator[tuple[str, LearnedScalars]]:
    """The submodules with learned scalars, by name; a shared submodule occurs once for each of its names."""
    for name, part in module.named_modules(remove_duplicate=False):
        if isinstance(part, LearnedScalars) and present_scalars(part):
            yield name, part


def effective_parameters(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters of a module by name, learned scalars with their gain, as they act."""
    for name, parameter in module.named_parameters():
        inside, _, own = name.rpartition(".")
        holder = module.get_submodule(inside)
        yield name, holder.effective(own) if isinstance(holder, LearnedScalars) and own in holder.scalars else parameter


def resolve_gain(bias_gain: float | str | None, width: int) -> float:
    """The gain as a number: the square root of the width for ``auto``, 1 for None.

    Args:
        width: the width of a head for scalars in attention, of the embeddings for input positions.
    """
    if bias_gain == "auto":
        return math.sqrt(width)
    return 1.0 if bias_gain is None else float(bias_gain)
