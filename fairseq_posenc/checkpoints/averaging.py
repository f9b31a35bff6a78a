"""Averages several checkpoints of one training in the memory of two models."""

from __future__ import annotations

import os
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError, few
from ..signature import SIGNATURE, read_signature, same_positions
from .checking import check_finite, describe_type
from .checksums import Checksums
from .loading import StrPath, load_checkpoint
from .runs import differences_of_runs, run_settings
from .settings import differing_settings, model_settings


def average_checkpoints(
    paths: Iterable[StrPath],
    output: StrPath,
    *,
    allow_different_runs: bool = False,
    report: Callable[[Path], None] = lambda path: None,
) -> Path:
    """Averages the parameters of checkpoints into a new checkpoint.

    fairseq can use the result wherever it loads a model (generate, interactive, `--finetune-from-model`,
    `--restore-file` with `--reset-optimizer`). The result contains no optimizer, EMA or meter state. Its configuration
    is that of the input with the most updates, and `extra_state["averaged_from"]` lists the inputs.

    - Floating-point tensors keep their dtype; half precision is summed in float32 and rounded once.
    - Integer tensors must be equal in all files, and the records of positions must be equivalent.
    - Tensors that share memory (tied embeddings) share it in the result too.
    - Memory: the sums (in float32, so twice the size of half-precision parameters), and the parameters of one input,
      memory-mapped from its file.
    - `output` is written atomically: an existing file of that name is kept until the new one is complete.

    Args:
        paths: the checkpoints to average.
        output: the checkpoint to write.
        allow_different_runs: also average trainings with different seeds, optimization or data.
        report: called with each path before it is read.

    Returns:
        `output`.

    Raises:
        CheckpointError: there is nothing to average; a file cannot be loaded or is damaged; a parameter is NaN or
            infinite; the files are not of one model (architecture, flags, parameter names, shapes, dtypes) or not of
            one training (seed, batches, optimization, data by content); or the output cannot be written.
    """
    sources = _distinct_files(paths)
    output = Path(output)
    _check_output(output, sources)
    total: _Sum | None = None
    newest: dict[str, Any] = {}
    for source in sources:
        report(source)
        state = load_checkpoint(source)
        total = total or _Sum(source, state, allow_different_runs)
        total.add(source, state)
        header = _header(state)
        if not newest or _updates(header) >= _updates(newest):
            newest = header
        del state  # before the next file is read: a file of an old torch is not mapped, but read as a whole
    assert total is not None
    newest["extra_state"]["averaged_from"] = [os.fspath(source) for source in sources]
    _write({**newest, "model": total.mean()}, output)
    return output


def _distinct_files(paths: Iterable[StrPath]) -> list[Path]:
    """The paths, checked to be at least one, and all different files."""
    sources = [Path(path) for path in paths]
    if not sources:
        raise CheckpointError("There are no checkpoints to average; name at least one file.")
    for i, source in enumerate(sources):
        for other in sources[:i]:
            if _same_file(source, other):
                raise CheckpointError(
                    f"{source} is given twice"
                    + (f" (once as {other})" if other != source else "")
                    + " among the checkpoints to average; name each file once."
                )
    return sources


def _check_output(output: Path, sources: Iterable[Path]) -> None:
    if output.exists() and not (output.is_file() or output.is_dir()):
        raise CheckpointError(f"{output} is not a regular file; name a file for the output.")
    if output.is_dir():
        raise CheckpointError(f"{output} is a directory; name a file for the output, such as {output / 'averaged.pt'}.")
    if not output.parent.is_dir():
        raise CheckpointError(f"The directory {output.parent} does not exist; create it, or choose another output.")
    if any(_same_file(output, source) for source in sources):
        raise CheckpointError(f"{output} is one of the checkpoints to average; choose another output.")


def _same_file(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))


def _header(state: Mapping[str, Any]) -> dict[str, Any]:
    """What fairseq needs in addition to the parameters to load a checkpoint: configuration and history."""
    history = [dict(entry) for entry in state.get("optimizer_history") or [{}]][-1:]
    history[0].pop("optimizer", None)  # the optimizer's state, in files of old versions
    history[0] = {"optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0, **history[0]}
    iterator = (state.get("extra_state") or {}).get("train_iterator")
    return {
        "args": state.get("args"),
        "cfg": state.get("cfg"),
        "criterion": None,
        "optimizer_history": history,
        "task_state": state.get("task_state") or {},
        "extra_state": {"train_iterator": iterator or {"epoch": 1, "iterations_in_epoch": 0}},
    }


def _updates(header: Mapping[str, Any]) -> int:
    return int(header["optimizer_history"][-1]["num_updates"])


class _Sum:
    """The sums of tensors over checkpoints of one model. `source`, the first checkpoint, defines the model."""

    def __init__(self, source: Path, state: Mapping[str, Any], allow_different_runs: bool) -> None:
        model = state["model"]
        self.source = source
        self.count = 0
        self.settings = model_settings(source, state)
        self.run = None if allow_different_runs else run_settings(state)
        self.types = _types(model)
        self.dtypes = {name: value.dtype for name, value in model.items() if _is_averaged(value)}
        self.first_names = _first_names(model)
        # Not averaged: integers, and values that are not tensors.
        self.constants = {
            name: value.clone() if isinstance(value, Tensor) else value
            for name, value in model.items()
            if not _is_averaged(value)
        }
        self.sums = {
            name: torch.zeros(model[name].shape, dtype=_sum_dtype(dtype))
            for name, dtype in self.dtypes.items()
            if self.first_names[name] == name
        }
        # torch's state dicts store the versions of modules in this attribute, which load_state_dict reads.
        self.metadata = getattr(model, "_metadata", None)

    def add(self, source: Path, state: Mapping[str, Any]) -> None:
        """Adds the tensors of one file.

        Raises:
            CheckpointError: it is damaged, or of another model or training.
        """
        model = state["model"]
        self._check_settings(source, model_settings(source, state))
        self._check_run(source, state)
        self._check_types(source, _types(model))
        first_names = _first_names(model)
        checksums = Checksums(source)
        for name, value in model.items():
            first = self.first_names[name]
            if first != name:
                if first_names[name] != first_names[first] and not _equal(value, model[first]):
                    raise CheckpointError(
                        f"{source} holds two different tensors for {first} and {name}, which are tied in "
                        f"{self.source}; average only checkpoints of one training."
                    )
                continue
            checksums.verify(name, value)
            if name in self.sums:
                value = value.to(_sum_dtype(value.dtype))
                check_finite(source, name, value)
                self.sums[name].add_(value)
            elif name == SIGNATURE:
                self._check_positions(source, value)
            elif not _equal(value, self.constants[name]):
                raise CheckpointError(
                    f"{source} and {self.source} differ in {name}, which cannot be averaged since it is not a "
                    "floating-point tensor; average only checkpoints of one training."
                )
        self.count += 1

    def mean(self) -> OrderedDict[str, Any]:
        """The means, in the dtypes and the order of the files. It consumes the sums to save memory."""
        values = dict(self.constants)
        for name in list(self.sums):
            values[name] = self.sums.pop(name).div_(self.count).to(self.dtypes[name])
        model = OrderedDict((name, values[first]) for name, first in self.first_names.items())
        if self.metadata is not None:
            model._metadata = self.metadata  # type: ignore[attr-defined]
        return model

    def _check_settings(self, source: Path, settings: Mapping[str, Any]) -> None:
        for key, here, there in differing_settings(settings, self.settings):
            raise CheckpointError(
                f"{source} was trained with {key} = {here}, {self.source} with {key} = {there}; "
                "average only checkpoints of one training."
            )

    def _check_run(self, source: Path, state: Mapping[str, Any]) -> None:
        differences = [] if self.run is None else list(differences_of_runs(run_settings(state), self.run))
        if differences:
            raise CheckpointError(
                f"{source} and {self.source} are of different trainings ({'; '.join(differences)}); average only "
                "checkpoints of one training, or give --allow-different-runs to average them anyway."
            )

    def _check_positions(self, source: Path, record: Tensor) -> None:
        own = self.constants[SIGNATURE]
        if not same_positions(record, own):
            raise CheckpointError(
                f"{source} and {self.source} differ in {SIGNATURE}, the positions of the model "
                f"({read_signature(record)} and {read_signature(own)}); average only checkpoints of one training."
            )

    def _check_types(self, source: Path, types: Mapping[str, str]) -> None:
        for one, more, other, fewer in (
            (source, types, self.source, self.types),
            (self.source, self.types, source, types),
        ):
            only = [name for name in more if name not in fewer]
            if only:
                raise CheckpointError(
                    f"{one} has parameters that {other} does not have ({few(only)}); average only checkpoints of one "
                    "model."
                )
        for name, own in self.types.items():
            if types[name] != own:
                raise CheckpointError(
                    f"{source} holds {name} as {types[name]}, {self.source} as {own}; "
                    "average only checkpoints of one model."
                )


def _is_averaged(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums: at least float32, since float16 and bfloat16 would round in each addition."""
    return torch.promote_types(dtype, torch.float32)


def _types(model: Mapping[str, Any]) -> dict[str, str]:
    # Equivalent records of positions may differ in length.
    return {name: "a record" if name == SIGNATURE else describe_type(value) for name, value in model.items()}


def _equal(one: object, other: object) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return bool(one == other)


def _first_names(model: Mapping[str, Any]) -> dict[str, str]:
    """For each name of a parameter, the first name of the same tensor: another name only for tied parameters."""
    by_memory: dict[object, str] = {}
    first_names: dict[str, str] = {}
    for name, value in model.items():
        memory: object = name
        if isinstance(value, Tensor) and value.numel():
            memory = (value.data_ptr(), value.dtype, value.shape, value.stride())
        first_names[name] = by_memory.setdefault(memory, name)
    return first_names


def _write(state: Mapping[str, Any], output: Path) -> None:
    """Writes atomically: to a temporary file in the same directory, which is then renamed."""
    # Not by the number of the process, which another machine may use at the same time.
    temporary = output.with_name(f".{output.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        torch.save(dict(state), temporary)
        _sync(temporary)
        os.replace(temporary, output)
        _sync(output.parent)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        raise CheckpointError(
            f"{output} cannot be written ({reason}); check the directory's permissions and free space."
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Waits until a file, or a directory's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
