"""Faults of fairseq that would reach users in silence, mended where they arise, for every model of the process.

* ``data_utils.batch_by_size`` drops the last batch when its size is no multiple of ``--required-batch-size-multiple``
  (8 by default): 20 sentences in, 16 translations out, exit status 0, and validation that skips the longest pairs.
* A damaged or unsafe checkpoint ends in an error of the unpickler that names no file and advises to switch safety off.
"""

from __future__ import annotations

import functools
from argparse import Namespace
from typing import Any

import numpy as np
from fairseq import checkpoint_utils
from fairseq.data import data_utils

from .checkpoints import load_checkpoint


def install() -> None:
    """Wraps the two functions once, however often the package is imported."""
    for module, name, wrap in (
        (data_utils, "batch_by_size", keep_every_sentence),
        (checkpoint_utils, "load_checkpoint_to_cpu", explain_failure),
    ):
        function = getattr(module, name)
        if not getattr(function, "guarded", False):
            guarded = wrap(function)
            guarded.guarded = True
            setattr(module, name, guarded)


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


def explain_failure(load_checkpoint_to_cpu: Any) -> Any:
    @functools.wraps(load_checkpoint_to_cpu)
    def load(path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            state = load_checkpoint_to_cpu(path, *args, **kwargs)
        except Exception:
            load_checkpoint(path)  # says in one sentence what is wrong with the file
            raise
        forget_fine_tuning(state)
        return state

    return load


def forget_fine_tuning(state: dict[str, Any]) -> None:
    """A model rebuilt from a checkpoint is not about to be fine-tuned, though the flag stands in its configuration."""
    for arguments in (state.get("args"), (state.get("cfg") or {}).get("model")):
        if isinstance(arguments, Namespace) and getattr(arguments, "finetune_from_model", None):  # never in hydra's
            arguments.finetune_from_model = None
