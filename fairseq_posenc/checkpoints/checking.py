"""Validates a checkpoint before anything is built from it: its parts, and settings that cannot run code."""

from __future__ import annotations

import math
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError, few
from ..signature import SIGNATURE, parse_signature
from .literals import EVALUATED, is_literal

#: a reference to another setting in omegaconf; anything else in ${} calls a function, such as ${oc.env:HOME}
_REFERENCE = re.compile(r"\$\{[\w.\[\]]+\}")


def check_state(path: Path, state: Any) -> dict[str, Any]:
    """Validates the content of a checkpoint, and returns it.

    Raises:
        CheckpointError: it is not a checkpoint of fairseq, or not safe to build a model from; the message names the
            part.
    """
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        holds = f"keys {few(state)}" if isinstance(state, dict) else f"a {type(state).__name__}"
        raise CheckpointError(
            f"{path} is no checkpoint of fairseq: it has no dict 'model' of parameters "
            f"(it holds {holds}); name a file that fairseq-train wrote, such as checkpoint_best.pt."
        )
    for part, kind in (("cfg", dict), ("args", Namespace)):
        group = state.get(part)
        if not isinstance(group, kind | None):  # omegaconf would parse a text
            raise _refusal(path, f"its {part!r} is a {type(group).__name__}, not a {kind.__name__}")
        try:
            _check_settings(path, group, part)
        except RecursionError:
            raise _refusal(path, f"its {part!r} holds itself or is nested too deeply") from None
    if SIGNATURE in state["model"]:
        try:
            parse_signature(state["model"][SIGNATURE])
        except ValueError as error:
            raise _refusal(path, str(error)) from None
    return state


def _check_settings(path: Path, value: Any, *place: str) -> None:
    """Refuses a configuration that runs code when it is evaluated.

    Python evaluates bytes and arrays as code, too, so all types but numbers, texts and containers are refused.
    """
    if isinstance(value, Namespace):
        value = vars(value)
    if isinstance(value, str):
        _check_text(path, place, value)
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check_settings(path, inner, *place, str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_settings(path, inner, *place, "[]")
    elif not isinstance(value, int | float | None):
        raise _refusal(
            path, f"its setting {'.'.join(place)} is a {type(value).__name__}, not a number, a text, a list or a dict"
        )


def _check_text(path: Path, place: tuple[str, ...], text: str) -> None:
    """Refuses a setting that fairseq or omegaconf would evaluate as code."""
    name, shown = ".".join(place), repr(text[:200])
    if "${" in _REFERENCE.sub("", text.replace("\\", "")):
        raise _refusal(path, f"its setting {name} = {shown} would call a function of omegaconf")
    # Evaluating a bare name runs no code, and other models may have words in a setting of that name.
    if place[-1] in EVALUATED and not text.isidentifier() and not is_literal(text):
        raise _refusal(path, f"fairseq would run its setting {name} = {shown} as code")


def check_finite(path: Path, name: str, value: Tensor) -> None:
    """Refuses a parameter with NaN or infinite numbers.

    Raises:
        CheckpointError: it has such numbers.
    """
    # aminmax returns NaN if any number is NaN; torch.isfinite would allocate several tensors of the same size.
    if value.numel() and not all(math.isfinite(extreme) for extreme in torch.aminmax(value)):
        raise CheckpointError(
            f"{path} holds NaN or infinite numbers in {name}, so its training has diverged; use an earlier checkpoint."
        )


def describe_type(value: object) -> str:
    """The dtype and shape of a tensor, or the type of any other value."""
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"


def _refusal(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{path} is refused: {what}; use a file that fairseq-train wrote.")
