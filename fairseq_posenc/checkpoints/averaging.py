"""Averages several checkpoints of one training in the memory of two models."""

from __future__ import annotations

import copy
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from ..errors import CheckpointError, few
from ..signature import SIGNATURE, read_signature
from .loading import StrPath, check_finite, load_checkpoint
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
    if output.resolve() in [source.resolve() for source in sources]:
        raise CheckpointError(f"{output} is one of the checkpoints to average; choose another output.")
    mean: _Mean | None = None
    for source in sources:
        report(source)
        state = load_checkpoint(source)
        mean = mean or _Mean(source, state)
        mean.add(source, state, allow_different_runs)
        del state  # before the next file is read: a file of an old torch is not mapped, but read as a whole
    assert mean is not None
    _write(mean.checkpoint(sources), output)
    return output


class _Mean:
    """The mean of checkpoints of one model. `source`, the first checkpoint, defines the model."""

    def __init__(self, source: Path, state: Mapping[str, Any]) -> None:
        self.source = source
        self.settings = training_settings(state)
        self.count = 0
        self.newest: dict[str, Any] = {}
        self.kinds = _kinds(state["model"])
        self.dtypes = {name: value.dtype for name, value in state["model"].items() if value.is_floating_point()}
        #: of each parameter, the first name of the same tensor: another name only for tied parameters
        self.owners = _owners(state["model"])
        self.model = copy.copy(state["model"])  # with the versions of modules, which load_state_dict reads
        for name, value in self.model.items():
            if self.owners[name] != name:
                self.model[name] = self.model[self.owners[name]]
            elif name in self.dtypes:
                dtype = torch.promote_types(value.dtype, torch.float32)  # half precision would round in each addition
                self.model[name] = torch.zeros(value.shape, dtype=dtype)
            else:
                self.model[name] = value.clone()

    def add(self, source: Path, state: Mapping[str, Any], allow_different_runs: bool) -> None:
        """Adds one file; CheckpointError if its training has diverged, or is of another model or training."""
        found = "; ".join(differences(training_settings(state), self.settings))
        if found and not allow_different_runs:
            raise CheckpointError(
                f"{source} and {self.source} are of different trainings ({found}); average only checkpoints of one "
                "training, or give --allow-different-runs to average them anyway."
            )
        kinds = _kinds(state["model"])
        differing = [name for name in kinds | self.kinds if kinds.get(name) != self.kinds.get(name)]
        if differing:
            where = (f"{name} ({kinds.get(name, 'missing')}, {self.kinds.get(name, 'missing')})" for name in differing)
            raise CheckpointError(
                f"{source} and {self.source} differ in {few(where)}, which cannot be averaged; average only "
                "checkpoints of one training."
            )
        for name in self.dtypes:
            if self.owners[name] == name:
                check_finite(source, name, state["model"][name])
                self.model[name].add_(state["model"][name])
        self.count += 1
        if not self.newest or _updates(state) >= _updates(self.newest):
            self.newest = {part: state[part] for part in state if part not in ("model", "last_optimizer_state")}

    def checkpoint(self, sources: list[Path]) -> dict[str, Any]:
        """The newest checkpoint with the mean parameters, without what only resuming needs. It consumes the sums."""
        for name, dtype in self.dtypes.items():
            owner = self.owners[name]
            self.model[name] = self.model[owner] if owner != name else self.model[name].div_(self.count).to(dtype)
        extra = {
            "train_iterator": (self.newest.get("extra_state") or {}).get("train_iterator"),
            "averaged_from": [os.fspath(source) for source in sources],
        }
        return {**self.newest, "model": self.model, "extra_state": extra}


def _updates(state: Mapping[str, Any]) -> int:
    return int(state["optimizer_history"][-1]["num_updates"])


def _kinds(model: Mapping[str, Any]) -> dict[str, str]:
    """What must be equal in all files: type and shape of each tensor, numbers of integers, the record of positions."""
    kinds = {}
    for name, value in model.items():
        kind = f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
        if name == SIGNATURE:
            kind = read_signature(value)  # those of old versions may be longer
        elif not value.is_floating_point():
            kind += f" {value.tolist()}"
        kinds[name] = kind
    return kinds


def _owners(model: Mapping[str, Any]) -> dict[str, str]:
    by_memory: dict[object, str] = {}
    owners: dict[str, str] = {}
    for name, value in model.items():
        memory = (value.data_ptr(), value.dtype, value.shape, value.stride()) if value.numel() else name
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
