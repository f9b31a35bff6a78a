"""Faults of fairseq that would reach users in silence, mended where they arise, for every model of the process.

* ``data_utils.batch_by_size`` drops the last batch when its size is no multiple of ``--required-batch-size-multiple``
  (8 by default): 20 sentences in, 16 translations out, exit status 0, and validation that skips the longest pairs.
* With several processes and ``--update-freq``, the shorter shards of an epoch's last update end in a dummy batch, for
  which the trainer forgets the sizes of the real batches before it, so that the update's gradient is too large.
* A training that resumes after its last update makes one more: ``--max-update`` is looked at only after an update.
* A torchrun that is killed leaves its processes training, which then race with the resumed training on one directory.
* What is wrong in reading checkpoints: :mod:`.checkpoint_guards`.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import signal
import sys
from collections import ChainMap
from collections.abc import Iterator, Sized
from types import ModuleType
from typing import Any

import numpy as np
from fairseq import checkpoint_utils, models, tasks, utils
from fairseq.data import data_utils, iterators
from fairseq.data.fasta_dataset import FastaDataset
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from . import checkpoint_guards
from .checkpoints import literals

logger = logging.getLogger(__name__)


def install() -> None:
    """Wraps the functions once, however often the package is imported."""
    architectures = ChainMap(models.ARCH_MODEL_REGISTRY, models.MODEL_DATACLASS_REGISTRY)
    replaced: dict[Any, Any] = {}
    for owner, name, wrap in (
        (data_utils, "batch_by_size", keep_every_sentence),
        (iterators, "_chunk_iterator", dummies_first),
        (FairseqTask, "train_step", count_no_dummy),
        (checkpoint_utils, "load_checkpoint_to_cpu", checkpoint_guards.read_safely),
        (checkpoint_utils, "load_ema_from_checkpoint", checkpoint_guards.read_ema_safely),
        (checkpoint_utils, "load_model_ensemble_and_task", checkpoint_guards.explain_models),
        (tasks, "setup_task", checkpoint_guards.name_unknown("task", tasks.TASK_REGISTRY)),
        (models, "build_model", checkpoint_guards.name_unknown("arch", architectures)),
        (Trainer, "load_checkpoint", lambda function: checkpoint_guards.know_the_start(stop_where_done(function))),
        (FastaDataset, "_build_index", checkpoint_guards.refuse_shell_words),
        (utils, "eval_str_list", lambda _: literals.eval_str_list),
        (utils, "eval_str_dict", lambda _: literals.eval_str_dict),
        (utils, "eval_bool", lambda _: literals.eval_bool),
    ):
        function = getattr(owner, name)
        if not getattr(function, "guarded", False):
            guarded: Any = wrap(function)
            guarded.guarded = True
            setattr(owner, name, guarded)
            if isinstance(owner, ModuleType):
                replaced[function] = guarded
    _replace_imported(replaced)
    checkpoint_guards.unpack_inside()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()


def _replace_imported(replaced: dict[Any, Any]) -> None:
    """Replaces functions in all modules that imported them by name."""
    new = {id(function): guarded for function, guarded in replaced.items()}
    for module in list(sys.modules.values()) if new else []:
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in new:
                setattr(module, name, new[id(value)])


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


def stop_where_done(load_checkpoint: Any) -> Any:
    """Keeps a training that was killed between its last checkpoint and its end from changing that checkpoint."""

    @functools.wraps(load_checkpoint)
    def load(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        extra_state = load_checkpoint(trainer, *args, **kwargs)
        optimization = trainer.cfg.optimization
        if 0 < optimization.max_update <= trainer.get_num_updates():
            logger.info(f"nothing to train: --max-update {optimization.max_update} is reached")
            optimization.max_epoch = -1  # of all limits, fairseq looks only at this one before an update; 0 means none
        return extra_state

    return load


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
