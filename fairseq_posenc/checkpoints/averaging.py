"""The mean of several checkpoints of one training, in the memory of two models."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError, few
from ..signature import SIGNATURE, read_signature, same_positions
from .checking import check_finite, form
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
    """Average the parameters of the checkpoints `paths` into the new checkpoint `output`; return its path.

    The result loads wherever fairseq loads a model (generate, interactive, `--finetune-from-model`,
    `--restore-file` with `--reset-optimizer`); it holds no optimizer, EMA or meter state. Its configuration
    is that of the most trained input, and `extra_state["averaged_from"]` names the inputs.

    - Floating-point tensors keep their dtype; half precision is summed in float32 and rounded once.
    - Tensors of integers must be equal in all files; the model's record of its positions must mean the same.
    - Tensors that share memory (tied embeddings) still share it in the result.
    - In memory at a time: the sums (float32, so twice the size of half-precision parameters) and the
      parameters of one input, mapped from its file.
    - `output` appears complete or not at all; an older file of that name stays until then.

    `report` is called with each path before it is read. With `allow_different_runs` the files need not be of
    one training: other seeds, optimization or data are averaged, too.

    Raises CheckpointError if there is nothing to average, a file cannot be loaded or is damaged, a
    parameter is NaN or infinite, the files are not of one model (architecture, flags, parameter names,
    shapes, dtypes) or not of one training (seed, batches, optimization, data by content), or the output cannot
    be written.
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
        del state  # before the next file is read: that of an old torch is in memory as a whole
    assert total is not None
    newest["extra_state"]["averaged_from"] = [os.fspath(source) for source in sources]
    _write({**newest, "model": total.mean()}, output)
    return output


def _distinct_files(paths: Iterable[StrPath]) -> list[Path]:
    """The paths, at least one, no two of them the same file."""
    sources = [Path(path) for path in paths]
    if not sources:
        raise CheckpointError("There are no checkpoints to average; name at least one file.")
    for i, source in enumerate(sources):
        for other in sources[:i]:
            if _same_file(source, other):
                raise CheckpointError(
                    f"{source} is twice among the checkpoints to average"
                    + (f" (once as {other})" if other != source else "")
                    + "; name each file once."
                )
    return sources


def _check_output(output: Path, sources: Iterable[Path]) -> None:
    if output.exists() and not (output.is_file() or output.is_dir()):
        raise CheckpointError(f"{output} is no regular file; name a file for the output.")
    if output.is_dir():
        raise CheckpointError(f"{output} is a directory; name a file for the output, such as {output / 'averaged.pt'}.")
    if not output.parent.is_dir():
        raise CheckpointError(f"The directory {output.parent} does not exist; create it, or choose another output.")
    if any(_same_file(output, source) for source in sources):
        raise CheckpointError(f"{output} is one of the checkpoints to average; choose another output.")


def _same_file(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))


def _header(state: Mapping[str, Any]) -> dict[str, Any]:
    """What fairseq needs beside the parameters to load a checkpoint: configuration and history."""
    history = [dict(entry) for entry in state.get("optimizer_history") or [{}]][-1:]
    history[0].pop("optimizer", None)  # its state, in files of old versions
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
    """The sums of the tensors of checkpoints of one model, which is the model of `source`."""

    def __init__(self, source: Path, state: Mapping[str, Any], allow_different_runs: bool) -> None:
        model = state["model"]
        self.source = source
        self.count = 0
        self.settings = model_settings(source, state)
        self.run = None if allow_different_runs else run_settings(state)
        self.forms = _forms(model)
        self.dtypes = {name: value.dtype for name, value in model.items() if _is_averaged(value)}
        self.leaders = _leaders(model)
        # Not counted in the sums: integers, and what is no tensor.
        self.constants = {
            name: value.clone() if isinstance(value, Tensor) else value
            for name, value in model.items()
            if not _is_averaged(value)
        }
        self.sums = {
            name: torch.zeros(model[name].shape, dtype=_sum_dtype(dtype))
            for name, dtype in self.dtypes.items()
            if self.leaders[name] == name
        }
        # load_state_dict reads the modules' versions from this attribute of torch's state dicts.
        self.metadata = getattr(model, "_metadata", None)

    def add(self, source: Path, state: Mapping[str, Any]) -> None:
        """Adds the tensors of one file. Raises CheckpointError if it is damaged or of another model."""
        model = state["model"]
        self._check_settings(source, model_settings(source, state))
        self._check_run(source, state)
        self._check_forms(source, _forms(model))
        leaders = _leaders(model)
        checksums = _Checksums(source)
        for name, value in model.items():
            leader = self.leaders[name]
            if leader != name:
                if leaders[name] != leaders[leader] and not _equal(value, model[leader]):
                    raise CheckpointError(
                        f"{source} holds two different tensors for {leader} and {name}, which are one in "
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
                    f"{source} and {self.source} differ in {name}, which is no floating-point tensor and so "
                    "has no mean; average only checkpoints of one training."
                )
        self.count += 1

    def mean(self) -> OrderedDict[str, Any]:
        """The means, in the dtypes and the order of the files. The sums are used up, so that memory does
        not grow.
        """
        values = dict(self.constants)
        for name in list(self.sums):
            values[name] = self.sums.pop(name).div_(self.count).to(self.dtypes[name])
        model = OrderedDict((name, values[leader]) for name, leader in self.leaders.items())
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
                "checkpoints of one training, or give --allow-different-runs if you mean it."
            )

    def _check_positions(self, source: Path, record: Tensor) -> None:
        own = self.constants[SIGNATURE]
        if not same_positions(record, own):
            raise CheckpointError(
                f"{source} and {self.source} differ in {SIGNATURE}, how their models treat positions "
                f"({read_signature(record)} and {read_signature(own)}); average only checkpoints of one training."
            )

    def _check_forms(self, source: Path, forms: Mapping[str, str]) -> None:
        for one, more, other, fewer in (
            (source, forms, self.source, self.forms),
            (self.source, self.forms, source, forms),
        ):
            only = [name for name in more if name not in fewer]
            if only:
                raise CheckpointError(
                    f"{one} has parameters that {other} has not ({few(only)}); average only checkpoints of one model."
                )
        for name, own in self.forms.items():
            if forms[name] != own:
                raise CheckpointError(
                    f"{source} holds {name} as {forms[name]}, {self.source} as {own}; "
                    "average only checkpoints of one model."
                )


def _is_averaged(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype to sum in: at least 32 bits a number, as float16 and bfloat16 round at each addition."""
    return torch.promote_types(dtype, torch.float32)


def _forms(model: Mapping[str, Any]) -> dict[str, str]:
    # The record of positions may be longer in one file than in another that means the same.
    return {name: "a record" if name == SIGNATURE else form(value) for name, value in model.items()}


def _equal(one: object, other: object) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return bool(one == other)


def _leaders(model: Mapping[str, Any]) -> dict[str, str]:
    """For each name, the first name that stands for the very same piece of memory: itself, unless they are
    tied.
    """
    first: dict[object, str] = {}
    leaders: dict[str, str] = {}
    for name, value in model.items():
        place: object = name
        if isinstance(value, Tensor) and value.numel():
            place = (value.data_ptr(), value.dtype, value.shape, value.stride())
        leaders[name] = first.setdefault(place, name)
    return leaders


class _Checksums:
    """The checksums that torch wrote into a file, which it does not look at itself when it maps the file."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.known: set[tuple[int, int]] = set()
        if zipfile.is_zipfile(source):
            with zipfile.ZipFile(source) as archive:
                self.known = {(record.file_size, record.CRC) for record in archive.infolist() if record.CRC}

    def verify(self, name: str, value: object) -> None:
        """Raises CheckpointError if no part of the file has the checksum of this tensor's memory."""
        if not self.known or not isinstance(value, Tensor) or not value.numel():
            return  # a file from before torch 1.6, or written without checksums, has none
        storage = value.untyped_storage()
        data: Any = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        if (storage.nbytes(), zlib.crc32(data)) not in self.known:
            raise CheckpointError(
                f"{self.source} is damaged: the numbers of {name} do not fit its checksum; "
                "copy it again or leave it out."
            )


def _write(state: Mapping[str, Any], output: Path) -> None:
    """Write under a temporary name in the same directory, then rename: `output` is never half a file."""
    temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
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
    """Waits until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
