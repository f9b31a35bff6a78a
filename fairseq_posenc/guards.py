"""Faults of fairseq that would reach users in silence, mended where they arise, for every model of the process.

* ``data_utils.batch_by_size`` drops the last batch when its size is no multiple of ``--required-batch-size-multiple``
  (8 by default): 20 sentences in, 16 translations out, exit status 0, and validation that skips the longest pairs.
* With several processes and ``--update-freq``, the shorter shards of an epoch's last update end in a dummy batch, for
  which the trainer forgets the sizes of the real batches before it, so that the update's gradient is too large.
* A torchrun that is killed leaves its processes training, which then race with the resumed training on one directory.
* A ``--restore-file`` or ``--continue-once`` that does not exist, and a ``--finetune-from-model`` that is a directory,
  are passed over: the training starts from random parameters, exit status 0.
* Models are not told whether a checkpoint is resumed or fine-tuned, which decides whether its positions may differ.
* A damaged or unsafe checkpoint ends in an error of the unpickler that names no file and advises to switch safety off.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
from collections.abc import Iterator, Sized
from typing import Any

import numpy as np
from fairseq import checkpoint_utils
from fairseq.data import data_utils, iterators
from fairseq.file_io import PathManager
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from .checkpoints import load_checkpoint
from .model import fine_tuning


def install() -> None:
    """Wraps the functions once, however often the package is imported."""
    for module, name, wrap in (
        (data_utils, "batch_by_size", keep_every_sentence),
        (iterators, "_chunk_iterator", dummies_first),
        (FairseqTask, "train_step", count_no_dummy),
        (Trainer, "load_checkpoint", know_the_start),
        (checkpoint_utils, "load_checkpoint_to_cpu", explain_failure),
    ):
        function = getattr(module, name)
        if not getattr(function, "guarded", False):
            guarded = wrap(function)
            guarded.guarded = True
            setattr(module, name, guarded)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()


def die_with_parent() -> None:
    """Asks Linux to kill this process when its parent ends (elsewhere, nothing is done)."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def keep_every_sentence(batch_by_size: Any) -> Any:
    @functools.wraps(batch_by_size)
    def complete(indices: Any, *args: Any, **kwargs: Any) -> list[Any]:
        if not isinstance(indices, np.ndarray):
            indices = np.fromiter(indices, dtype=np.int64, count=-1)
        batches = list(batch_by_size(indices, *args, **kwargs))
        batched = sum(map(len, batches))
        if batched < len(indices):
            # Batches are slices of the indices in their order; what is dropped is the tail of the last one, so it is
            # within all limits.
            batches.append(indices[batched:])
        return batches

    return complete


def dummies_first(chunk_iterator: Any) -> Any:
    """The trainer takes all batches of an update for dummies if its last one is. None is left out, as sharded models
    need the same number of passes in each process."""

    def is_real(batch: Any) -> bool:
        # What has no length is no batch: others group items of any kind.
        return batch is not None and not (isinstance(batch, Sized) and len(batch) == 0)

    @functools.wraps(chunk_iterator)
    def ordered(*args: Any, **kwargs: Any) -> Iterator[list[Any]]:
        for chunk in chunk_iterator(*args, **kwargs):
            yield sorted(chunk, key=is_real)

    return ordered


def count_no_dummy(train_step: Any) -> Any:
    """A batch whose gradient is ignored adds nothing to an update's sizes and statistics either."""

    @functools.wraps(train_step)
    def step(
        task: Any,
        sample: Any,
        model: Any,
        criterion: Any,
        optimizer: Any,
        update_num: int,
        ignore_grad: bool = False,
    ) -> tuple[Any, Any, dict[str, Any]]:
        loss, sample_size, logging_output = train_step(
            task, sample, model, criterion, optimizer, update_num, ignore_grad
        )
        if ignore_grad:
            sample_size, logging_output = sample_size * 0, _nothing_of(logging_output)
        return loss, sample_size, logging_output

    return step


def _nothing_of(logged: Any) -> Any:
    """Zeros for numbers; criteria with several tasks log a dictionary for each."""
    if isinstance(logged, dict):
        return {name: _nothing_of(value) for name, value in logged.items()}
    return logged * 0 if hasattr(logged, "__mul__") else logged


def know_the_start(load_checkpoint: Any) -> Any:
    """Refuses a start that is not there, and tells models when one is fine-tuned.

    Only the training's own last checkpoint need not be there yet; any other was named by the user.
    """

    @functools.wraps(load_checkpoint)
    def load(trainer: Any, filename: str, *args: Any, **kwargs: Any) -> Any:
        cfg = trainer.cfg.checkpoint
        own = os.path.join(cfg.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")
        resumes = os.path.abspath(filename) == os.path.abspath(own)
        if not resumes and not PathManager.isfile(filename):
            flag = "--finetune-from-model"
            if cfg.restore_file != "checkpoint_last.pt":
                flag = "--restore-file"
            elif getattr(cfg, "continue_once", None):
                flag = "--continue-once"
            wrong = "is a directory" if os.path.isdir(filename) else "does not exist"
            raise ValueError(
                f"{flag} {filename} {wrong}; name a file that fairseq-train wrote, such as checkpoint_best.pt, or "
                f"leave {flag} out to start from random parameters."
            )
        with fine_tuning(not resumes and filename == cfg.finetune_from_model):
            return load_checkpoint(trainer, filename, *args, **kwargs)

    return load


def explain_failure(load_checkpoint_to_cpu: Any) -> Any:
    @functools.wraps(load_checkpoint_to_cpu)
    def load(path: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return load_checkpoint_to_cpu(path, *args, **kwargs)
        except Exception:
            load_checkpoint(path)  # says in one sentence what is wrong with the file
            raise

    return load
