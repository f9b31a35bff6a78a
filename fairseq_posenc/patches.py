"""Patches of fairseq's functions, for every model of the process: faults that users would not notice are fixed.

* ``data_utils.batch_by_size`` drops the last batch when its size is no multiple of ``--required-batch-size-multiple``
  (8 by default): 20 sentences in, 16 translations out, exit status 0, and validation that skips the longest pairs.
* With several processes and ``--update-freq``, the shorter shards of an epoch's last update end in a dummy batch. The
  trainer then ignores the sizes of the real batches before it, and the update's gradient is too large.
* A training that resumes after its last update makes one more: ``--max-update`` is checked only after an update.
* A torchrun that is killed leaves its processes training, which then race with the resumed training on one directory.
* Faults in reading checkpoints: see :mod:`.checkpoint_patches`.
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

from . import checkpoint_patches
from .checkpoints import literals

logger = logging.getLogger(__name__)


def install() -> None:
    """Patches the functions; called again, it does nothing."""
    architectures = ChainMap(models.ARCH_MODEL_REGISTRY, models.MODEL_DATACLASS_REGISTRY)
    replaced: dict[Any, Any] = {}
    for owner, name, wrap in (
        (data_utils, "batch_by_size", keep_every_sentence),
        (iterators, "_chunk_iterator", dummies_first),
        (FairseqTask, "train_step", count_no_dummy),
        (checkpoint_utils, "load_checkpoint_to_cpu", checkpoint_patches.read_safely),
        (checkpoint_utils, "load_ema_from_checkpoint", checkpoint_patches.read_ema_safely),
        (checkpoint_utils, "load_model_ensemble_and_task", checkpoint_patches.explain_models),
        (tasks, "setup_task", checkpoint_patches.name_unknown("task", tasks.TASK_REGISTRY)),
        (models, "build_model", checkpoint_patches.name_unknown("arch", architectures)),
        (Trainer, "load_checkpoint", lambda function: checkpoint_patches.know_the_start(stop_where_done(function))),
        (FastaDataset, "_build_index", checkpoint_patches.refuse_shell_words),
        (utils, "eval_str_list", lambda _: literals.eval_str_list),
        (utils, "eval_str_dict", lambda _: literals.eval_str_dict),
        (utils, "eval_bool", lambda _: literals.eval_bool),
    ):
        function = getattr(owner, name)
        if not getattr(function, "patched", False):
            patched: Any = wrap(function)
            patched.patched = True
            setattr(owner, name, patched)
            if isinstance(owner, ModuleType):
                replaced[function] = patched
    _replace_imported(replaced)
    checkpoint_patches.unpack_inside()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()


def _replace_imported(replaced: dict[Any, Any]) -> None:
    """Replaces functions in all modules that imported them by name."""
    new = {id(function): patched for function, patched in replaced.items()}
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
    """Adds the batch that fairseq drops."""

    @functools.wraps(batch_by_size)
    def complete(indices: Any, *args: Any, **kwargs: Any) -> list[Any]:
        if not isinstance(indices, np.ndarray):
            indices = np.fromiter(indices, dtype=np.int64, count=-1)
        batches = list(batch_by_size(indices, *args, **kwargs))
        batched = sum(map(len, batches))
        if batched < len(indices):
            # Batches are slices of the indices in order, and the tail of the last one is dropped, which is within all
            # limits.
            batches.append(indices[batched:])
        return batches

    return complete


def dummies_first(chunk_iterator: Any) -> Any:
    """Sorts dummies to the front: the trainer treats all batches of an update as dummies if the last one is. None is
    left out, since sharded models need the same number of passes in each process.
    """

    def is_real(batch: Any) -> bool:
        # Items without a length are no batches: the iterator groups items of any kind.
        return batch is not None and not (isinstance(batch, Sized) and len(batch) == 0)

    @functools.wraps(chunk_iterator)
    def ordered(*args: Any, **kwargs: Any) -> Iterator[list[Any]]:
        for chunk in chunk_iterator(*args, **kwargs):
            yield sorted(chunk, key=is_real)

    return ordered


def stop_where_done(load_checkpoint: Any) -> Any:
    """Makes no further update when a training resumes from its last one, so that its checkpoint does not change."""

    @functools.wraps(load_checkpoint)
    def load(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        extra_state = load_checkpoint(trainer, *args, **kwargs)
        optimization = trainer.cfg.optimization
        if 0 < optimization.max_update <= trainer.get_num_updates():
            logger.info(f"nothing to train: --max-update {optimization.max_update} is reached")
            optimization.max_epoch = -1  # the only limit that fairseq checks before an update; 0 means none
        return extra_state

    return load


def count_no_dummy(train_step: Any) -> Any:
    """Makes a batch whose gradient is ignored add nothing to an update's sizes and statistics either."""

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
