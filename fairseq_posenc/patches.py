"""Patches of fairseq, which fix silent errors: :data:`PATCHES` lists them.

Importing the package installs them for all models of the process, unless the environment variable
FAIRSEQ_POSENC_PATCHES is 0. They replace functions in fairseq's own modules only, and ``eval`` in these by one that
accepts literals only. What else fairseq's commands need is done only in a process that runs one of them
(:func:`enter_command`).
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import signal
import sys
import weakref
from collections.abc import Callable, Iterator, Sized
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from fairseq import checkpoint_utils, file_utils, utils
from fairseq.data import data_utils, iterators
from fairseq.dataclass import utils as dataclass_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from . import checkpoint_patches
from .effects import needs_gpu
from .errors import FlagError, hide_tracebacks

logger = logging.getLogger(__name__)


def install() -> None:
    """Installs all patches, unless FAIRSEQ_POSENC_PATCHES is 0."""
    if os.environ.get("FAIRSEQ_POSENC_PATCHES") == "0":
        return
    replaced: dict[int, Any] = {}
    for owner, name, wrap in PATCHES:
        function = getattr(owner, name, None)
        if function is None:  # some forks have removed it
            continue
        patched = wrap(function)
        setattr(owner, name, patched)
        # What was imported by name is the function before all patches.
        replaced |= {key: patched for key, value in replaced.items() if value is function}
        replaced[id(function)] = patched
    for module in filter(_is_fairseqs, list(sys.modules.values())):
        for name, value in list(vars(module).items()):
            if id(value) in replaced:  # imported by name
                setattr(module, name, replaced[id(value)])
        vars(module)["eval"] = checkpoint_patches.literal  # else settings in a checkpoint are run as code
    main = sys.modules["__main__"]
    if _is_fairseqs(main) or Path(getattr(main, "__file__", None) or "").stem.startswith("fairseq-"):  # pip's scripts
        enter_command()


def _is_fairseqs(module: ModuleType) -> bool:
    """Whether a module belongs to fairseq, also if it runs as `__main__` (`python -m fairseq_cli.train`)."""
    spec = getattr(module, "__spec__", None)
    name = spec.name if spec is not None else getattr(module, "__name__", "")
    file = Path(getattr(module, "__file__", None) or "")
    return name.partition(".")[0] in ("fairseq", "fairseq_cli") or (
        name == "__main__" and file.parent.name == "fairseq_cli"
    )


def enter_command() -> None:
    """Prepares a process that runs one of fairseq's commands.

    Errors of users are printed as one sentence, and processes of torchrun end with it: otherwise they continue to
    train, and write to the directory of the resumed training.
    """
    hide_tracebacks()
    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # only Linux has it
    if prctl is not None and "TORCHELASTIC_RUN_ID" in os.environ:
        prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: when its parent ends, the process is killed


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


def translate_one_shard(convert: Any) -> Any:
    """Makes fairseq-generate translate only the shard --shard-id of --num-shards: it reads these as its processes."""

    @functools.wraps(convert)
    def converted(args: Any) -> Any:
        shards, shard = getattr(args, "num_shards", 1), getattr(args, "shard_id", 0)
        # Of the commands with a beam, fairseq-interactive reads lines that only it knows.
        if shards > 1 and hasattr(args, "beam") and not hasattr(args, "buffer_size"):
            if not 0 <= shard < shards:
                raise FlagError(f"--shard-id {shard} with --num-shards {shards}: it must be 0 to {shards - 1}.")
            args.distributed_world_size, args.distributed_rank = shards, shard
        return convert(args)

    return converted


def refuse_fp16_on_a_cpu(build_optimizer: Any) -> Any:
    """Refuses to train by --fp16 on a CPU."""

    @functools.wraps(build_optimizer)
    def built(trainer: Any) -> None:
        given = {name.replace("_", "-") for name, value in trainer.cfg.common.items() if value}
        if not trainer.cuda and needs_gpu(given):
            raise FlagError(
                "--fp16 needs a GPU, and this training runs on a CPU: leave it out, or give --bf16 or "
                "--memory-efficient-fp16."
            )
        build_optimizer(trainer)

    return built


def ignore_dummy_sizes(train_step: Any) -> Any:
    """Excludes dummy batches, whose gradient is ignored, from the sizes and statistics of an update too."""

    @functools.wraps(train_step)
    def step(
        task: Any, sample: Any, model: Any, criterion: Any, optimizer: Any, update_num: int, ignore_grad: bool = False
    ) -> tuple[Any, Any, dict[str, Any]]:
        loss, sample_size, logged = train_step(task, sample, model, criterion, optimizer, update_num, ignore_grad)
        if ignore_grad:
            sample_size *= 0
            # Criteria of several tasks also log dictionaries, which stay.
            logged = {name: value * 0 if hasattr(value, "__mul__") else value for name, value in logged.items()}
        return loss, sample_size, logged

    return step


#: (owner, name, what wraps the function), in the order in which they are installed
PATCHES: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
    # The last sentences are dropped if their number is not a multiple of --required-batch-size-multiple (8 by default):
    # fairseq-generate translates 16 of 20 sentences and exits with status 0, and validation skips the longest pairs.
    (data_utils, "batch_by_size", keep_every_sentence),
    # With several processes and --update-freq, shorter shards end with a dummy batch in the last update of an epoch.
    # The trainer then ignores the sizes of the real batches before it, and the gradient is too large.
    (iterators, "_chunk_iterator", sort_dummies_first),
    (FairseqTask, "train_step", ignore_dummy_sizes),
    # An iterator over the training data, which fairseq drops after each epoch with --update-epoch-batch-itr, is in a
    # reference cycle. Until the garbage collector finds it, which takes many epochs, the data loader's processes live
    # on, each with a copy of the training's memory.
    (iterators.FrozenBatchSampler, "__init__", refer_weakly),
    # Code in a checkpoint is run, and embedding files that it names are read.
    (checkpoint_utils, "load_checkpoint_to_cpu", checkpoint_patches.read_safely),
    (checkpoint_utils, "load_ema_from_checkpoint", checkpoint_patches.read_ema_safely),
    # `from_pretrained` extracts archives whose members may be written outside the target directory.
    (file_utils, "load_archive_file", checkpoint_patches.extract_safely),
    # Several processes cannot resume: torch refuses the configuration that the first sends to the others.
    (distributed_utils, "_broadcast_object_slow", checkpoint_patches.send_by_pickle),
    # The error for a damaged or incompatible checkpoint does not name the file, or hides the cause.
    (checkpoint_utils, "load_model_ensemble_and_task", checkpoint_patches.explain_load_errors),
    # A training that resumes after its last update makes one more, since --max-update is checked after an update only.
    (Trainer, "load_checkpoint", stop_if_finished),
    # A missing --restore-file or --continue-once, or a directory as --finetune-from-model, starts from random
    # parameters. Models are not told whether a checkpoint is resumed or fine-tuned; only the latter may change
    # positions.
    (Trainer, "load_checkpoint", checkpoint_patches.check_start),
    # --bf16 implies --tpu, so that no GPU is used, and without PyTorch/XLA it ends in a traceback.
    (dataclass_utils, "convert_namespace_to_omegaconf", allow_bf16_without_tpu),
    # --fp16 on a CPU ends in "Torch not compiled with CUDA enabled".
    (Trainer, "_build_optimizer", refuse_fp16_on_a_cpu),
    # fairseq-generate --num-shards N translates every sentence in each of the N calls.
    (dataclass_utils, "convert_namespace_to_omegaconf", translate_one_shard),
)
