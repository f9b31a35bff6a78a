"""What a checkpoint must hold before anything is built from it: the right types, and settings that run nothing."""

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

_PLAIN = (bool, int, float, str, type(None))
#: of a configuration, which may refer to itself or to one part many times
_DEEPEST, _MOST_SETTINGS = 30, 100_000
#: epochs, batches and updates; fairseq adds them to --seed, and NumPy takes no seed from 2 ** 32 on
_MOST_COUNTED = 2**31
#: a reference to another setting, which omegaconf looks up; anything else in ${} calls a function, as ${oc.env:HOME}
_REFERENCE = re.compile(r"\$\{[\w.\[\]]+\}")
#: tensors of floating-point numbers by their names; other names may be of counters, as adaptive_softmax.version is
_PARAMETER = re.compile(r"(weight|bias)$|\.position_encoding\.|\.embed_positions\.")


def check_state(path: Path, state: Any) -> dict[str, Any]:
    """What was read from a checkpoint, if it is fairseq's and safe to build a model from.

    Raises:
        CheckpointError: it is not; the message names the part.
    """
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        holds = f"keys {few(state)}" if isinstance(state, dict) else f"a {type(state).__name__}"
        raise CheckpointError(
            f"{path} is no checkpoint of fairseq: it has no 'model' with a model's tensors "
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
            raise _wrong(path, f"its {part!r} is a {type(group).__name__}, not a {kind.__name__}")
        for number, (place, value) in enumerate(_settings(path, group, (part,)), 1):
            if number > _MOST_SETTINGS:
                raise _wrong(path, f"its configuration has more than {_MOST_SETTINGS:,} settings")
            if isinstance(value, str):
                _check_text(path, place, value)
    for name in ("model", "task"):
        group = (state.get("cfg") or {}).get(name)
        if not isinstance(group, dict | Namespace | None):
            raise _wrong(path, f"its setting cfg.{name} is a {type(group).__name__}, not a group of settings")


def _settings(path: Path, value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each value that is no container, after what it stands in."""
    yield place, value
    if len(place) > _DEEPEST:
        raise _wrong(path, "its configuration holds itself or is nested too deeply")
    if isinstance(value, Namespace):
        value = vars(value)
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, _PLAIN):
                raise _wrong(path, f"its setting {'.'.join(place)} has a {type(key).__name__} as a key")
            yield from _settings(path, inner, (*place, str(key)))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _settings(path, inner, (*place, "[]"))
    elif not isinstance(value, _PLAIN):
        raise _wrong(
            path, f"its setting {'.'.join(place)} is a {type(value).__name__}, not a number, a text, a list or a dict"
        )


def _check_text(path: Path, place: tuple[str, ...], text: str) -> None:
    """Refuses a setting that fairseq, or omegaconf on its behalf, would run."""
    name = ".".join(place)
    if "${" in _REFERENCE.sub("", text.replace("\\", "")):
        raise _wrong(path, f"its setting {name} = {text[:200]!r} would call a function of omegaconf")
    # What a bare name stands for is looked up, and nothing runs: other models may have words in a setting of that name.
    if place[-1] in EVALUATED and not text.isidentifier():
        try:
            parse_literal(text)
        except ValueError as error:
            raise _wrong(path, f"fairseq would run its setting {name} as code, and {error}") from None


def _check_sizes(path: Path, state: dict[str, Any]) -> None:
    """Refuses a model larger than what is in the file, which could take for ever to build."""
    model = (state.get("cfg") or {}).get("model") or state.get("args") or {}
    tensors = [value for value in state["model"].values() if isinstance(value, Tensor)]
    numbers = sum(value.numel() for value in tensors)
    for place, value in _settings(path, model, ("model",)):
        most = {"layers": len(tensors), "dim": numbers}.get(place[-1].rpartition("_")[2])
        if most is not None and isinstance(value, int) and value > most:
            raise _wrong(path, f"its setting {'.'.join(place)} = {value:,} asks for a larger model than is in it")


def check_complete(path: Path, state: dict[str, Any]) -> None:
    """Refuses a checkpoint without what fairseq reads beside the parameters; old versions kept it elsewhere."""
    for part, earlier in (("extra_state", "epoch"), ("optimizer_history", "best_loss")):
        if part not in state and earlier not in state:
            raise _wrong(path, f"it has no {part!r}")


def _check_progress(path: Path, state: dict[str, Any]) -> None:
    """What a training goes on from."""
    extra, history = state.get("extra_state"), state.get("optimizer_history")
    if "extra_state" in state and not isinstance(extra, dict):
        raise _wrong(path, f"its 'extra_state' is a {type(extra).__name__}, not a dict")
    if isinstance(extra, dict):
        _check_extra_state(path, extra)
    if "optimizer_history" in state:
        if not isinstance(history, list) or not history or not all(isinstance(entry, dict) for entry in history):
            raise _wrong(path, "its 'optimizer_history' is no list of dicts")
        _check_count(path, "number of updates", history[-1].get("num_updates", 0))


def _check_extra_state(path: Path, extra: dict[str, Any]) -> None:
    batches = extra.get("train_iterator")
    if not isinstance(batches, dict | None):
        raise _wrong(path, f"its 'train_iterator' is a {type(batches).__name__}, not a dict")
    for name in ("epoch", "iterations_in_epoch"):
        _check_count(path, f"train_iterator's {name}", (batches or {}).get(name, 0))
    for name in ("best", "val_loss", "previous_training_time"):
        number = extra.get(name)
        if number is not None and not hasattr(number, "__float__"):  # a metric may be a tensor or an array
            raise _wrong(path, f"its {name!r} is a {type(number).__name__}, not a number")


def _check_count(path: Path, name: str, count: object) -> None:
    if not isinstance(count, int):
        raise _wrong(path, f"its {name} is a {type(count).__name__}, not a whole number")
    if not 0 <= count < _MOST_COUNTED:
        raise _wrong(path, f"its {name} is not between 0 and {_MOST_COUNTED:,}")


def _check_parameters(path: Path, model: dict[Any, Any]) -> None:
    for name, value in model.items():
        if not isinstance(name, str):
            raise _wrong(path, f"a parameter's name is a {type(name).__name__}")
        if isinstance(value, Tensor):
            _check_tensor(path, name, value)
        if name == SIGNATURE:
            try:
                parse_signature(value)
            except ValueError as error:
                raise _wrong(path, str(error)) from None
        elif _PARAMETER.search(name) and not _are_numbers(value):
            raise _wrong(path, f"it holds {name} as {form(value)}, not as floating-point numbers")


def _check_tensor(path: Path, name: str, value: Tensor) -> None:
    if value.is_floating_point() and value.element_size() == 1:
        raise _wrong(path, f"it holds {name} as {form(value)}, and fairseq writes no numbers of 8 bits")
    # A few repeated numbers may stand for more than any memory holds.
    stored = value.layout == torch.strided and value.device.type == "cpu"
    if stored and value.numel() * value.element_size() > value.untyped_storage().nbytes():
        raise _wrong(path, f"its {name} stands for more numbers ({value.numel():,}) than are in it")


def _are_numbers(value: object) -> bool:
    """Whether it is a tensor of floating-point numbers on the CPU."""
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.layout == torch.strided
        and value.device.type == "cpu"
    )


def check_finite(path: Path, name: str, value: Tensor) -> None:
    """Refuses a parameter with NaN or infinite numbers."""
    # The extremes tell, as both are NaN if any number is; torch.isfinite would need several tensors of the same size.
    if value.numel() and not all(math.isfinite(extreme) for extreme in torch.aminmax(value)):
        raise CheckpointError(
            f"{path} holds NaN or infinite numbers in {name}, so its training went wrong; use checkpoints from before "
            "that."
        )


def form(value: object) -> str:
    """The dtype and the shape of a tensor, the type of anything else."""
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    unusual = "" if value.layout == torch.strided and value.device.type == "cpu" else f"{value.device} {value.layout} "
    return f"{unusual}{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"


def _wrong(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{path} is refused: {what}; use a file that fairseq-train wrote.")
