"""Averages several checkpoints of one training in the memory of two models."""

from __future__ import annotations

import copy
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError, few
from ..signature import SIGNATURE, read_signature
from .checking import check_finite, describe_type
from .loading import StrPath, load_checkpoint
from .training import differences, training_settings


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
    - Other tensors must be equal in all files, and the records of positions must be equivalent.
    - Tensors that share memory (tied embeddings) share it in the result too.
    - Memory: the sums (in float32, so twice the size of half-precision parameters), and the parameters of one input,
      memory-mapped from its file.
    - `output` is written atomically: an existing file of that name is kept until the new one is complete.

    Args:
        paths: the checkpoints to average.
        output: the checkpoint to write.
        allow_different_runs: also average trainings with different settings or data.
        report: called with each path before it is read.

    Returns:
        `output`.

    Raises:
        CheckpointError: there is nothing to average; a file cannot be loaded or is damaged; a parameter is NaN or
            infinite; the files differ in parameter names, shapes or dtypes, or are not of one training (settings of
            the model, seed, batches, optimization, data); or the output cannot be written.
    """
    sources, output = [Path(path) for path in paths], Path(output)
    if not sources:
        raise CheckpointError("There are no checkpoints to average; name at least one file.")
    for number, source in enumerate(sources):
        if source.resolve() in [other.resolve() for other in sources[:number]]:
            raise CheckpointError(f"{source} is given twice among the checkpoints to average; name each file once.")
    if output.resolve() in [source.resolve() for source in sources]:
        raise CheckpointError(f"{output} is one of the checkpoints to average; choose another output.")
    total: _Sum | None = None
    newest: dict[str, Any] = {}
    for source in sources:
        report(source)
        state = load_checkpoint(source)
        total = total or _Sum(source, state)
        total.add(source, state, allow_different_runs)
        header = _header(state)
        if not newest or _updates(header) >= _updates(newest):
            newest = header
        del state  # before the next file is read: a file of an old torch is not mapped, but read as a whole
    assert total is not None
    newest["extra_state"]["averaged_from"] = [os.fspath(source) for source in sources]
    _write({**newest, "model": total.mean()}, output)
    return output


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

    def __init__(self, source: Path, state: Mapping[str, Any]) -> None:
        self.source = source
        self.settings = training_settings(state)
        self.count = 0
        self.types = _types(state["model"])
        self.dtypes = {name: value.dtype for name, value in state["model"].items() if _is_averaged(value)}
        #: of each parameter, the first name of the same tensor: another name only for tied parameters
        self.owners = _owners(state["model"])
        self.model = copy.copy(state["model"])  # with the versions of modules, which load_state_dict reads
        for name, value in self.model.items():
            if _is_averaged(value):
                dtype = torch.promote_types(value.dtype, torch.float32)  # half precision would round in each addition
                self.model[name] = torch.zeros(value.shape, dtype=dtype) if self.owners[name] == name else None
            elif isinstance(value, Tensor):
                self.model[name] = value.clone()

    def add(self, source: Path, state: Mapping[str, Any], allow_different_runs: bool) -> None:
        """Adds the tensors of one file; CheckpointError if it is damaged, or of another model or training."""
        model, settings, types = state["model"], training_settings(state), _types(state["model"])
        if not settings:
            raise CheckpointError(
                f"{source} has no configuration of its model, neither 'cfg' nor 'args'; name a file that fairseq-train "
                "wrote."
            )
        if not allow_different_runs and (found := "; ".join(differences(settings, self.settings))):
            raise CheckpointError(
                f"{source} and {self.source} are of different trainings ({found}); average only checkpoints of one "
                "training, or give --allow-different-runs to average them anyway."
            )
        differing = [name for name in types | self.types if types.get(name) != self.types.get(name)]
        for name, value in model.items() if not differing else ():
            owner = self.owners[name]
            if owner != name:
                same = torch.equal(value, model[owner])
            elif _is_averaged(value):
                check_finite(source, name, value)
                self.model[name].add_(value)
                same = True
            elif isinstance(value, Tensor):
                same = name == SIGNATURE or torch.equal(value, self.model[name])
            else:
                same = value == self.model[name]
            if not same:
                differing.append(name)
        if differing:
            where = (f"{name} ({types.get(name, 'missing')}, {self.types.get(name, 'missing')})" for name in differing)
            raise CheckpointError(
                f"{source} and {self.source} differ in {few(where)}, which cannot be averaged; average only "
                "checkpoints of one training."
            )
        self.count += 1

    def mean(self) -> dict[str, Any]:
        """The means, in the dtypes and the order of the files. It consumes the sums to save memory."""
        for name, dtype in self.dtypes.items():
            if self.owners[name] == name:
                self.model[name] = self.model[name].div_(self.count).to(dtype)
        for name, owner in self.owners.items():
            self.model[name] = self.model[owner]
        found: dict[str, Any] = self.model
        return found


def _is_averaged(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _types(model: Mapping[str, Any]) -> dict[str, str]:
    """The type and shape of each value, or what the record of positions says: equivalent ones may differ in length."""
    return {name: read_signature(value) if name == SIGNATURE else describe_type(value) for name, value in model.items()}


def _owners(model: Mapping[str, Any]) -> dict[str, str]:
    by_memory: dict[object, str] = {}
    owners: dict[str, str] = {}
    for name, value in model.items():
        memory: object = name
        if isinstance(value, Tensor) and value.numel():
            memory = (value.data_ptr(), value.dtype, value.shape, value.stride())
        owners[name] = by_memory.setdefault(memory, name)
    return owners


def _write(state: Mapping[str, Any], output: Path) -> None:
    """Writes atomically: to a temporary file in the same directory, which is then renamed."""
    # Not by the number of the process, which another machine may use at the same time.
    temporary = output.with_name(f".{output.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        torch.save(dict(state), temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, output)
    except (OSError, RuntimeError) as error:  # torch reports a missing directory or a full disk as a RuntimeError
        reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        raise CheckpointError(
            f"{output} cannot be written ({reason}); check the directory, its permissions and free space."
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
