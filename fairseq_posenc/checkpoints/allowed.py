"""The allow-list of ``torch.load(weights_only=True)``: the Python types that a checkpoint may contain.

Since torch 2.6 the unpickler of checkpoints builds only types on an allow-list, so that a file cannot run code.
fairseq's checkpoints need a few more types, which are added here. Each occurs in checkpoints of stock fairseq, and can
only hold data.

fairseq's BLEU counts are NumPy arrays, but NumPy's own pickle functions are *not* on the list. ``dtype.__setstate__``
accepts any flags and sub-types from the file, and can thus make NumPy interpret bytes of the file as addresses of
Python objects: an int64 array with such a dtype crashes the interpreter, which may be exploitable. Their names are
mapped to replacements that build plain arrays of numbers only.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import pickle
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

_NUMBERS = ("i4", "i8", "f4", "f8")


class _Dtype:
    """Replaces `numpy.dtype` in a pickle: the name of a numeric type, and a byte order."""

    def __init__(self, name: str, *_: object) -> None:
        if name not in _NUMBERS:
            raise pickle.UnpicklingError(f"Unsupported NumPy dtype {name!r} in a checkpoint")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        # NumPy's state of a numeric dtype: no sub-type, no fields, no flags.
        if order not in ("<", ">") or state != (3, order, None, None, None, -1, -1, 0):
            raise pickle.UnpicklingError("Unsupported NumPy dtype in a checkpoint: not a plain number")
        self.dtype = self.dtype.newbyteorder(order)


class _Array(np.ndarray):
    """Replaces `numpy.ndarray` in a pickle. Pickled again, it becomes a plain `numpy.ndarray`."""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Dtype) or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("Unsupported NumPy array in a checkpoint: its values are not plain numbers")
        # frombuffer and reshape raise an error if the number of bytes does not match the shape.
        array = np.frombuffer(raw, dtype.dtype).reshape(shape, order="F" if fortran else "C")
        plain: Any = (1, array.shape, array.dtype, False, array.tobytes())
        super().__setstate__(plain)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return np.array(self, subok=False).__reduce_ex__(protocol)


def _reconstruct(kind: type, *_: object) -> _Array:
    """Replaces NumPy's `_reconstruct`: returns an empty array, which `_Array.__setstate__` then fills."""
    if kind is not _Array:
        raise pickle.UnpicklingError("Unsupported NumPy array in a checkpoint: not a numpy.ndarray")
    return _Array((0,))


_FILE_TYPES: list[Any] = [
    argparse.Namespace,  # cfg["model"] in every checkpoint of fairseq-train
    # --eval-bleu: n-gram counts in extra_state["metrics"] (int64; float64 with several processes)
    (_Array, "numpy.ndarray"),
    (_Dtype, "numpy.dtype"),
    (_reconstruct, "numpy._core.multiarray._reconstruct"),
    (_reconstruct, "numpy.core.multiarray._reconstruct"),  # in files written with NumPy 1
    # fairseq <= 0.9: extra_state["train_meters"], which later versions ignore and whose classes no longer exist.
    *((argparse.Namespace, f"fairseq.meters.{name}") for name in ("AverageMeter", "TimeMeter", "StopwatchMeter")),
]


UNSAFE_SWITCH = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
_loading = threading.RLock()


@contextlib.contextmanager
def safe_loading(types: Iterable[Any] = ()) -> Iterator[None]:
    """Lets `torch.load` also build the types of checkpoint files and `types`, and run no code from files.

    The environment variable that makes `torch.load` run code from files is ignored meanwhile. fairseq never passes
    `weights_only`, and if the variable and its opposite are set, torch cannot load any file. Afterwards the program has
    its own types and environment again.
    """
    with _loading:
        unsafe = os.environ.pop(UNSAFE_SWITCH, None)
        # torch forgets all that are named here at the end, also those that were allowed before
        new = {*_FILE_TYPES, *types}.difference(torch.serialization.get_safe_globals())
        try:
            with torch.serialization.safe_globals(list(new)):
                yield
        finally:
            if unsafe is not None:
                os.environ[UNSAFE_SWITCH] = unsafe


def message_types() -> list[Any]:
    """The types in a checkpoint that a process of fairseq sends to others, beside those in files.

    When several processes resume, the first one reads the file, converts the configuration to omegaconf's classes,
    replaces tensors by placeholders, and sends the rest as a pickle to the others, which read it with `torch.load`.
    """
    from fairseq.distributed.utils import _TensorPlaceholder
    from omegaconf import DictConfig, ListConfig
    from omegaconf.base import ContainerMetadata, Metadata
    from omegaconf.nodes import AnyNode

    return [
        _TensorPlaceholder,
        *(DictConfig, ListConfig, AnyNode, ContainerMetadata, Metadata),
        # in omegaconf's metadata: the types of keys and values, and the type of its cache
        *(dict, list, int, Any, collections.defaultdict),
    ]
