"""Which Python types a checkpoint may hold: the allow-list behind ``torch.load(weights_only=True)``.

Since torch 2.6 a checkpoint is read by an unpickler that builds only types on a list, so that a file cannot
run code. fairseq's checkpoints hold a few types more than that list; they are added here, each because a
checkpoint of stock fairseq was seen to need it, and none that could do more than hold data.

NumPy's own pickle functions are *not* among them, although fairseq's BLEU counts are arrays:
``dtype.__setstate__`` takes flags and sub-types from the file as they come, and with them NumPy takes the
file's bytes for addresses of Python objects (an int64 array with such a dtype crashes the interpreter,
which is where an exploit starts). Their names are mapped to stand-ins that build plain arrays of numbers
and nothing else.
"""

from __future__ import annotations

import argparse
import collections
import logging
import os
import pickle
from typing import Any

import numpy as np
import torch

logger = logging.getLogger(__name__)

_NUMBERS = ("i4", "i8", "f4", "f8")


class _Dtype:
    """Stands in for `numpy.dtype` in a pickle: the name of a number type and a byte order."""

    def __init__(self, name: str, *_: object) -> None:
        if name not in _NUMBERS:
            raise pickle.UnpicklingError(f"Unsupported NumPy dtype {name!r} in a checkpoint")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        # What NumPy writes for numbers: no sub-type, no fields, no flags.
        if order not in ("<", ">") or state != (3, order, None, None, None, -1, -1, 0):
            raise pickle.UnpicklingError("Unsupported NumPy dtype in a checkpoint: not a plain number")
        self.dtype = self.dtype.newbyteorder(order)


class _Array(np.ndarray):
    """Stands in for `numpy.ndarray` in a pickle. It is pickled again as the plain array that it is."""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Dtype) or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("Unsupported NumPy array in a checkpoint: its values are not plain numbers")
        # frombuffer and reshape refuse a size that the bytes do not fill.
        array = np.frombuffer(raw, dtype.dtype).reshape(shape, order="F" if fortran else "C")
        plain: Any = (1, array.shape, array.dtype, False, array.tobytes())
        super().__setstate__(plain)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return np.array(self, subok=False).__reduce_ex__(protocol)


def _reconstruct(kind: type, *_: object) -> _Array:
    """Stands in for NumPy's `_reconstruct`: an empty array, which `_Array.__setstate__` then fills."""
    if kind is not _Array:
        raise pickle.UnpicklingError("Unsupported NumPy array in a checkpoint: not a numpy.ndarray")
    return _Array((0,))


_FILE_TYPES: list[Any] = [
    argparse.Namespace,  # every checkpoint of fairseq-train: cfg["model"] (fairseq-hydra-train writes none)
    # --eval-bleu: n-gram counts (int64; float64 from several processes) in extra_state["metrics"]
    (_Array, "numpy.ndarray"),
    (_Dtype, "numpy.dtype"),
    (_reconstruct, "numpy._core.multiarray._reconstruct"),
    (_reconstruct, "numpy.core.multiarray._reconstruct"),  # the same, written with NumPy 1
    # fairseq <= 0.9: extra_state["train_meters"], which later versions ignore. The classes are gone; attributes stay.
    *((argparse.Namespace, f"fairseq.meters.{name}") for name in ("AverageMeter", "TimeMeter", "StopwatchMeter")),
]


_UNSAFE_SWITCH = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


def ignore_unsafe_switch() -> None:
    """Take away the environment variable that lets every `torch.load` run the code in a file, where the caller does
    not say `weights_only`, as fairseq never does. With it and its opposite set, torch loads nothing at all.
    """
    if os.environ.pop(_UNSAFE_SWITCH, None) is not None:
        logger.warning(
            f"{_UNSAFE_SWITCH} is ignored: it lets a checkpoint run code, and fairseq_posenc loads fairseq's "
            "checkpoints without it."
        )


def allow_file_types() -> None:
    """Let `torch.load(weights_only=True)` build what the files of fairseq-train hold. Does not import
    fairseq.
    """
    torch.serialization.add_safe_globals(_FILE_TYPES)


def allow_checkpoint_types() -> None:
    """Let fairseq load its own checkpoints safely: those in files, and those sent between processes.

    When several processes resume, the first reads the file, turns its configuration into omegaconf's
    classes and its tensors into placeholders, and sends the rest to the others as a pickle, which
    `torch.load` reads again.
    """
    from fairseq.distributed.utils import _TensorPlaceholder
    from omegaconf import DictConfig, ListConfig
    from omegaconf.base import ContainerMetadata, Metadata
    from omegaconf.nodes import AnyNode

    allow_file_types()
    torch.serialization.add_safe_globals(
        [
            _TensorPlaceholder,
            *(DictConfig, ListConfig, AnyNode, ContainerMetadata, Metadata),
            # named in omegaconf's metadata as types of keys and values, and for its cache
            *(dict, list, int, Any, collections.defaultdict),
        ]
    )
