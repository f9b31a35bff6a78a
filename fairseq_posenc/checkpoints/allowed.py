"""The allow-list of ``torch.load(weights_only=True)``: the Python types that a checkpoint may contain.

With ``weights_only`` torch builds only types on an allow-list, so that a file cannot run code (from torch 2.10 on;
:mod:`.loading` warns of older ones). fairseq's checkpoints need a few more types, which are added here. Each occurs in
checkpoints of stock fairseq, and can only hold data.

fairseq's BLEU counts are NumPy arrays, but NumPy's own pickle functions are *not* on the list. ``dtype.__setstate__``
accepts any flags and sub-types from the file, and can thus make NumPy interpret bytes of the file as addresses of
Python objects: an int64 array with such a dtype crashes the interpreter, which may be exploitable. Their names are
mapped to replacements that build plain arrays of numbers only.
"""

from __future__ import annotations

import argparse
import contextlib
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

_NUMBERS = {order + kind for order in "<>" for kind in ("i4", "i8", "f4", "f8")}


class _Dtype:
    """Replaces `numpy.dtype` in a pickle: the name of a numeric type, and a byte order."""

    def __init__(self, name: str, *_: object) -> None:
        self.name = name

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.name = state[1] + self.name


class _Array(np.ndarray):
    """Replaces `numpy.ndarray` in a pickle. Pickled again, it becomes a plain `numpy.ndarray`."""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        if dtype.name not in _NUMBERS or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("Unsupported NumPy array in a checkpoint: its values are not plain numbers")
        # frombuffer and reshape raise an error if the number of bytes does not match the shape.
        array = np.frombuffer(raw, np.dtype(dtype.name)).reshape(shape, order="F" if fortran else "C")
        plain: Any = (1, array.shape, array.dtype, False, array.tobytes())
        super().__setstate__(plain)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return np.array(self, subok=False).__reduce_ex__(protocol)


def _reconstruct(*_: object) -> _Array:
    """Replaces NumPy's `_reconstruct`: returns an empty array, which `_Array.__setstate__` then fills."""
    return _Array((0,))


_TYPES: list[Any] = [
    argparse.Namespace,  # cfg["model"] in every checkpoint of fairseq-train
    # --eval-bleu: n-gram counts in extra_state["metrics"] (int64; float64 with several processes)
    (_Array, "numpy.ndarray"),
    (_Dtype, "numpy.dtype"),
    (_reconstruct, "numpy._core.multiarray._reconstruct"),
    (_reconstruct, "numpy.core.multiarray._reconstruct"),  # in files written with NumPy 1
    # fairseq <= 0.9: extra_state["train_meters"], which later versions ignore and whose classes no longer exist.
    *((argparse.Namespace, f"fairseq.meters.{name}") for name in ("AverageMeter", "TimeMeter", "StopwatchMeter")),
]

_loading = threading.Lock()


@contextlib.contextmanager
def checkpoint_types() -> Iterator[None]:
    """Lets `torch.load(weights_only=True)` build the types of checkpoints; the program's own list is kept."""
    with _loading:
        # torch forgets all that are named here at the end, also those that were allowed before
        new = set(_TYPES).difference(torch.serialization.get_safe_globals())
        with torch.serialization.safe_globals(list(new)):
            yield
