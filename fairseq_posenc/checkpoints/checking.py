"""Validates a checkpoint before anything is built from it: types, sizes, and settings that cannot run code."""

from __future__ import annotations

import math
import re
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError, few
from ..signature import SIGNATURE, parse_signature
from .literals import EVALUATED, parse_literal

_SCALAR_TYPES = (bool, int, float, str, type(None))
#: limits of a configuration, which may contain itself, or one part many times
_MAX_DEPTH, _MAX_SETTINGS = 30, 100_000
#: limit of epochs, batches and updates: fairseq adds them to --seed, and NumPy refuses seeds from 2 ** 32 on
_MAX_COUNT = 2**31
#: a reference to another setting in omegaconf; anything else in ${} calls a function, such as ${oc.env:HOME}
_REFERENCE = re.compile(r"\$\{[\w.\[\]]+\}")
#: names of parameters, which must be floating-point tensors; other tensors may be counters (adaptive_softmax.version)
_PARAMETER = re.compile(r"(weight|bias)$|\.position_encoding\.|\.embed_positions\.")


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
    _check_configuration(path, state)
    _check_progress(path, state)
    _check_parameters(path, state["model"])
    _check_sizes(path, state)
    return state


def _check_configuration(path: Path, state: dict[str, Any]) -> None:
    for part, kind in (("cfg", dict), ("args", Namespace)):
        group = state.get(part)
        if not isinstance(group, kind | None):
            raise _refusal(path, f"its {part!r} is a {type(group).__name__}, not a {kind.__name__}")
        for number, (place, value) in enumerate(_settings(path, group, (part,)), 1):
            if number > _MAX_SETTINGS:
                raise _refusal(path, f"its configuration has more than {_MAX_SETTINGS:,} settings")
            if isinstance(value, str):
                _check_text(path, place, value)
    for name in ("model", "task"):
        group = (state.get("cfg") or {}).get(name)
        if not isinstance(group, dict | Namespace | None):
            raise _refusal(path, f"its setting cfg.{name} is a {type(group).__name__}, not a group of settings")


def _settings(path: Path, value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Iterates over a configuration depth first: the place and the value of each setting and each container.

    Raises:
        CheckpointError: it is nested too deeply, or holds other types than numbers, texts and containers.
    """
    yield place, value
    if len(place) > _MAX_DEPTH:
        raise _refusal(path, "its configuration holds itself or is nested too deeply")
    if isinstance(value, Namespace):
        value = vars(value)
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, _SCALAR_TYPES):
                raise _refusal(path, f"its setting {'.'.join(place)} has a {type(key).__name__} as a key")
            yield from _settings(path, inner, (*place, str(key)))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _settings(path, inner, (*place, "[]"))
    elif not isinstance(value, _SCALAR_TYPES):
        raise _refusal(
            path, f"its setting {'.'.join(place)} is a {type(value).__name__}, not a number, a text, a list or a dict"
        )


def _check_text(path: Path, place: tuple[str, ...], text: str) -> None:
    """Refuses a setting that fairseq or omegaconf would evaluate as code."""
    name = ".".join(place)
    if "${" in _REFERENCE.sub("", text.replace("\\", "")):
        raise _refusal(path, f"its setting {name} = {text[:200]!r} would call a function of omegaconf")
    # Evaluating a bare name runs no code, and other models may have words in a setting of that name.
    if place[-1] in EVALUATED and not text.isidentifier():
        try:
            parse_literal(text)
        except ValueError as error:
            raise _refusal(path, f"fairseq would run its setting {name} as code, and {error}") from None


def _check_sizes(path: Path, state: dict[str, Any]) -> None:
    """Refuses settings of a model larger than the one in the file, which could take for ever to build."""
    model = (state.get("cfg") or {}).get("model") or state.get("args") or {}
    tensors = [value for value in state["model"].values() if isinstance(value, Tensor)]
    numbers = sum(value.numel() for value in tensors)
    for place, value in _settings(path, model, ("model",)):
        most = {"layers": len(tensors), "dim": numbers}.get(place[-1].rpartition("_")[2])
        if most is not None and isinstance(value, int) and value > most:
            raise _refusal(
                path, f"its setting {'.'.join(place)} = {value:,} asks for a larger model than the one in the file"
            )


def check_complete(path: Path, state: dict[str, Any]) -> None:
    """Refuses a checkpoint without the parts that fairseq reads in addition to the parameters.

    Files of old versions have the part ``earlier`` instead.
    """
    for part, earlier in (("extra_state", "epoch"), ("optimizer_history", "best_loss")):
        if part not in state and earlier not in state:
            raise _refusal(path, f"it has no {part!r}")


def _check_progress(path: Path, state: dict[str, Any]) -> None:
    """Checks the state from which a training resumes."""
    extra, history = state.get("extra_state"), state.get("optimizer_history")
    if "extra_state" in state and not isinstance(extra, dict):
        raise _refusal(path, f"its 'extra_state' is a {type(extra).__name__}, not a dict")
    if isinstance(extra, dict):
        _check_extra_state(path, extra)
    if "optimizer_history" in state:
        if not isinstance(history, list) or not history or not all(isinstance(entry, dict) for entry in history):
            raise _refusal(path, "its 'optimizer_history' is not a list of dicts")
        _check_count(path, "number of updates", history[-1].get("num_updates", 0))


def _check_extra_state(path: Path, extra: dict[str, Any]) -> None:
    batches = extra.get("train_iterator")
    if not isinstance(batches, dict | None):
        raise _refusal(path, f"its 'train_iterator' is a {type(batches).__name__}, not a dict")
    for name in ("epoch", "iterations_in_epoch"):
        _check_count(path, f"train_iterator's {name}", (batches or {}).get(name, 0))
    for name in ("best", "val_loss", "previous_training_time"):
        number = extra.get(name)
        if number is not None and not hasattr(number, "__float__"):  # a metric may be a tensor or an array
            raise _refusal(path, f"its {name!r} is a {type(number).__name__}, not a number")


def _check_count(path: Path, name: str, count: object) -> None:
    if not isinstance(count, int):
        raise _refusal(path, f"its {name} is a {type(count).__name__}, not a whole number")
    if not 0 <= count < _MAX_COUNT:
        raise _refusal(path, f"its {name} is not between 0 and {_MAX_COUNT:,}")


def _check_parameters(path: Path, model: dict[Any, Any]) -> None:
    for name, value in model.items():
        if not isinstance(name, str):
            raise _refusal(path, f"a parameter's name is a {type(name).__name__}")
        if isinstance(value, Tensor):
            _check_tensor(path, name, value)
        if name == SIGNATURE:
            try:
                parse_signature(value)
            except ValueError as error:
                raise _refusal(path, str(error)) from None
        elif _PARAMETER.search(name) and not _is_float_tensor(value):
            raise _refusal(path, f"it holds {name} as {describe_type(value)}, not as floating-point numbers")


def _check_tensor(path: Path, name: str, value: Tensor) -> None:
    if value.is_floating_point() and value.element_size() == 1:
        raise _refusal(path, f"it holds {name} as {describe_type(value)}, and fairseq writes no 8-bit numbers")
    # A tensor with strides of 0 repeats a few numbers, and may be larger than any memory when copied.
    stored = value.layout == torch.strided and value.device.type == "cpu"
    if stored and value.numel() * value.element_size() > value.untyped_storage().nbytes():
        raise _refusal(path, f"its {name} has more numbers ({value.numel():,}) than are stored in the file")


def _is_float_tensor(value: object) -> bool:
    """Whether it is a dense tensor of floating-point numbers on the CPU."""
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.layout == torch.strided
        and value.device.type == "cpu"
    )


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
    unusual = "" if value.layout == torch.strided and value.device.type == "cpu" else f"{value.device} {value.layout} "
    return f"{unusual}{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"


def _refusal(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{path} is refused: {what}; use a file that fairseq-train wrote.")
