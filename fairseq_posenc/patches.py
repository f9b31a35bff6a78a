"""Patches of fairseq for all models of the process, which fix silent errors.

* ``data_utils.batch_by_size`` drops the last sentences if their number is not a multiple of
  ``--required-batch-size-multiple`` (8 by default): fairseq-generate translates 16 of 20 sentences and exits with
  status 0, and validation skips the longest pairs.
* With several processes and ``--update-freq``, the shorter shards end with a dummy batch in the last update of an
  epoch. The trainer then ignores the sizes of the real batches before it, and the gradient of the update is too large.
* A training that resumes after its last update makes one more, since ``--max-update`` is checked after an update only.
* An iterator over the training data that fairseq drops, as it does after each epoch with ``--update-epoch-batch-itr``,
  is in a reference cycle. Until the garbage collector finds it, which takes many epochs, the data loader's processes
  live on, each with a copy of the training's memory.
* The worker processes of a killed torchrun continue to train, and write to the same directory as the resumed training.
* ``--bf16`` implies ``--tpu``, so fairseq never uses a GPU with it, and without PyTorch/XLA it ends in a traceback.
* Errors in reading checkpoints: see :mod:`.checkpoint_patches`.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import signal
import sys
import weakref
from collections import ChainMap
from collections.abc import Iterator, Sized
from types import ModuleType
from typing import Any

import numpy as np
from fairseq import checkpoint_utils, models, tasks, utils
from fairseq.data import data_utils, iterators
from fairseq.data.fasta_dataset import FastaDataset
from fairseq.dataclass import utils as dataclass_utils
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from . import checkpoint_patches
from .checkpoints import literals

logger = logging.getLogger(__name__)


def install() -> None:
    """Installs all patches. Idempotent."""
    architectures = ChainMap(models.ARCH_MODEL_REGISTRY, models.MODEL_DATACLASS_REGISTRY)
    replaced: dict[Any, Any] = {}
    for owner, name, wrap in (
        (data_utils, "batch_by_size", keep_every_sentence),
        (iterators, "_chunk_iterator", sort_dummies_first),
        (iterators.FrozenBatchSampler, "__init__", refer_weakly),
        (FairseqTask, "train_step", ignore_dummy_sizes),
        (checkpoint_utils, "load_checkpoint_to_cpu", checkpoint_patches.read_safely),
        (checkpoint_utils, "load_ema_from_checkpoint", checkpoint_patches.read_ema_safely),
        (checkpoint_utils, "load_model_ensemble_and_task", checkpoint_patches.explain_load_errors),
        (tasks, "setup_task", checkpoint_patches.refuse_unknown("task", tasks.TASK_REGISTRY)),
        (models, "build_model", checkpoint_patches.refuse_unknown("arch", architectures)),
        (Trainer, "load_checkpoint", lambda function: checkpoint_patches.check_start(stop_if_finished(function))),
        (dataclass_utils, "convert_namespace_to_omegaconf", allow_bf16_without_tpu),
        (FastaDataset, "_build_index", checkpoint_patches.refuse_shell_characters),
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
    checkpoint_patches.extract_archives_safely()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()


def _replace_imported(replaced: dict[Any, Any]) -> None:
    """Replaces the functions in all modules that have imported them by name."""
    new = {id(function): patched for function, patched in replaced.items()}
    for module in list(sys.modules.values()) if new else []:
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in new:
                setattr(module, name, new[id(value)])


def die_with_parent() -> None:
    """Makes Linux kill this process when its parent ends. Does nothing on other systems."""
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
            # fairseq slices the indices in order and drops the end of the last slice, which is within all limits.
            batches.append(indices[batched:])
        return batches

    return complete


def sort_dummies_first(chunk_iterator: Any) -> Any:
    """Moves dummy batches to the front of an update.

    The trainer treats all batches of an update as dummies if the last one is a dummy. Dummies are not removed, since
    sharded models need the same number of passes in each process.
    """

    def is_real(batch: Any) -> bool:
        # fairseq also uses this iterator for items that are not batches and may have no length.
        return batch is not None and not (isinstance(batch, Sized) and len(batch) == 0)

    @functools.wraps(chunk_iterator)
    def ordered(*args: Any, **kwargs: Any) -> Iterator[list[Any]]:
        for chunk in chunk_iterator(*args, **kwargs):
            yield sorted(chunk, key=is_real)

    return ordered


def refer_weakly(init: Any) -> Any:
    """Has a sampler refer weakly to the iterator over the data that owns it, whose method makes the batches."""

    @functools.wraps(init)
    def initialize(sampler: Any, ordered_batches: Any, *args: Any, **kwargs: Any) -> None:
        batches = functools.partial(ordered_batches.__func__, weakref.proxy(ordered_batches.__self__))
        init(sampler, batches, *args, **kwargs)

    return initialize


def stop_if_finished(load_checkpoint: Any) -> Any:
    """Makes a training that resumes after its last update stop without another update."""

    @functools.wraps(load_checkpoint)
    def load(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        extra_state = load_checkpoint(trainer, *args, **kwargs)
        optimization = trainer.cfg.optimization
        if 0 < optimization.max_update <= trainer.get_num_updates():
            logger.info(f"nothing to train: --max-update {optimization.max_update} is reached")
            # fairseq checks only max_epoch before an update, and 0 means no limit.
            optimization.max_epoch = -1
        return extra_state

    return load


def allow_bf16_without_tpu(convert: Any) -> Any:
    """Lets --bf16 train on a GPU or a CPU if PyTorch/XLA, which a TPU needs, is not installed."""

    @functools.wraps(convert)
    def converted(args: Any) -> Any:
        if getattr(args, "bf16", False) and utils.xm is None:
            args.tpu = False
        return convert(args)

    return converted


def ignore_dummy_sizes(train_step: Any) -> Any:
    """Excludes dummy batches, whose gradient is ignored, from the sizes and statistics of an update too."""

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
            sample_size, logging_output = sample_size * 0, _zeros_like(logging_output)
        return loss, sample_size, logging_output

    return step


def _zeros_like(logged: Any) -> Any:
    """Replaces numbers by zeros, also in nested dictionaries, which criteria of several tasks log."""
    if isinstance(logged, dict):
        return {name: _zeros_like(value) for name, value in logged.items()}
    return logged * 0 if hasattr(logged, "__mul__") else logged
