"""Averages several checkpoints of one training in the memory of two models."""

from __future__ import annotations

import copy
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ..errors import CheckpointError, brief, few
from ..position_record import POSITION_RECORD, canonical_record
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
        CheckpointError: there is nothing to average; a file is named twice, cannot be loaded or is damaged; a parameter
            is NaN or infinite; the files differ in parameter names, shapes or dtypes, or are not of one training
            (settings of the model, seed, batches, optimization, data); or the output is a device, or cannot be written.
    """
    sources, output = [Path(path) for path in paths], Path(output)
    if not sources:
        raise CheckpointError("There are no checkpoints to average; name at least one file.")
    _require_file(output)
    if output.resolve() in [source.resolve() for source in sources]:
        raise CheckpointError(f"{output} is one of the checkpoints to average; choose another output.")
    _check_different(sources)
    first = load_checkpoint(sources[0])
    model = copy.copy(first["model"])  # with the versions of modules, which load_state_dict reads
    owners = _owners(model)
    sums = {
        # half precision would round in each addition
        name: torch.zeros_like(model[name], dtype=torch.promote_types(model[name].dtype, torch.float32))
        for name in dict.fromkeys(owners.values())
        if model[name].is_floating_point()
    }
    if not sums:
        raise CheckpointError(f"{sources[0]} has no parameters to average: name a checkpoint of a model.")
    newest: dict[str, Any] = {}
    for source in sources:
        report(source)
        # Also the first, a second time: the pages of a mapped file that were read stay in memory as long as it is open.
        state = load_checkpoint(source)
        _check_same(source, state, sources[0], first, allow_different_runs)
        for name, owner in owners.items():
            if owner != name and not torch.equal(state["model"][name], state["model"][owner]):
                raise CheckpointError(f"{name} and {owner} are tied in {sources[0]}, but differ in {source}.")
        for name, total in sums.items():
            check_finite(source, name, state["model"][name])
            total += state["model"][name]
        if not newest or _updates(state) >= _updates(newest):
            newest = {part: state[part] for part in state if part not in ("model", "last_optimizer_state")}
        del state  # before the next file is read: a file of an old torch is not mapped, but read as a whole
    for name, total in sums.items():
        model[name] = total.div_(len(sources)).to(model[name].dtype)
    model.update({name: model[owner] for name, owner in owners.items()})
    extra = {
        "train_iterator": (newest.get("extra_state") or {}).get("train_iterator"),
        "averaged_from": [os.fspath(source) for source in sources],
    }
    _write({**newest, "model": model, "extra_state": extra}, output)
    return output


def _check_different(sources: list[Path]) -> None:
    """Refuses a file that is named twice, also by a link or in another spelling: it would count twice."""
    seen: dict[tuple[int, int], Path] = {}
    for source in filter(Path.is_file, sources):
        status = source.stat()
        file = (status.st_dev, status.st_ino)
        if file in seen:
            raise CheckpointError(f"{source} and {seen[file]} are one file: name each checkpoint once.")
        seen[file] = source


def _check_same(
    source: Path, state: Mapping[str, Any], other: Path, first: Mapping[str, Any], allow_different_runs: bool
) -> None:
    """Refuses two checkpoints that are of different trainings or models."""
    different = "; ".join(differences(training_settings(state), training_settings(first)))
    if different and not allow_different_runs:
        raise CheckpointError(
            f"{source} and {other} are of different trainings ({different}); average only checkpoints of one "
            "training, or give --allow-different-runs to average them anyway."
        )
    if unlike := list(differences(_kinds(state["model"]), _kinds(first["model"]))):
        raise CheckpointError(
            f"{source} and {other} are of different models ({few(unlike)}); average only checkpoints of one training."
        )


def _updates(state: Mapping[str, Any]) -> int:
    return int(state["optimizer_history"][-1]["num_updates"])


def _kinds(model: Mapping[str, Any]) -> dict[str, str]:
    """What must be equal in all files: type and shape of each tensor, numbers of integers, the record of positions."""
    kinds = {}
    for name, value in model.items():
        kind = f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
        if name == POSITION_RECORD:
            kind = canonical_record(value)  # those of old versions may be longer
        elif not value.is_floating_point():
            kind += f" {value.tolist()}"
        kinds[name] = kind
    return kinds


def _owners(model: Mapping[str, Any]) -> dict[str, str]:
    """Of each tensor, the first name of the same tensor: another name only for tied parameters."""
    by_memory: dict[object, str] = {}
    owners: dict[str, str] = {}
    for name, value in model.items():
        owners[name] = by_memory.setdefault((value.data_ptr(), value.dtype, value.shape, value.stride()), name)
    return owners


def _require_file(output: Path) -> None:
    """Refuses an output that is neither a regular file nor a new name in a directory."""
    parent = output.absolute().parent
    # The rename would replace a device, and /dev/stdout even where it leads to a file.
    if (os.path.lexists(output) and not output.is_file()) or parent == Path("/dev"):
        raise CheckpointError(
            f"{output} is a directory, a device, a pipe or a broken link: name a file, such as averaged.pt."
        )
    if not parent.is_dir():
        raise CheckpointError(f"{output}: {parent} is not a directory: make it first, or name another output.")


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
        raise CheckpointError(
            f"{output} cannot be written ({brief(error)}); check the directory, its permissions and free space."
        ) from None
    finally:
        with suppress(OSError):  # a disk that cannot be written refuses this, too, even if the file is missing
            temporary.unlink()
