"""A device that is emulated on the CPU, so that machines without a GPU run tests of one.

Its tensors refuse tensors of the CPU, as those of a GPU do; the CPU computes their values. To PyTorch it is the device
"meta", the only one besides the CPU that every build has.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = torch.device("meta")

aten: Any = torch.ops.aten
BETWEEN_DEVICES = {aten._to_copy.default, aten.copy_.default}
#: operations whose indices may be on the CPU
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten._index_put_impl_.default}
#: what PyTorch leaves to later, and what does the same at once: the kernels here would see neither
AT_ONCE = {aten._conj.default: aten._conj_physical.default, aten._neg_view.default: aten.neg.default}


class OnDevice(Tensor):
    """A tensor of the emulated device; ``values`` are on the CPU."""

    values: Any

    @staticmethod
    def __new__(cls, values: Tensor) -> OnDevice:
        shape: Any = {"strides": values.stride(), "storage_offset": values.storage_offset(), "dtype": values.dtype}
        # The device is only that of the wrapper; ``compute`` answers for the tensor.
        shape |= {"device": "cpu", "dispatch_device": True}
        made: Any = Tensor._make_wrapper_subclass(cls, values.size(), **shape)
        made.values = values
        return made

    def __setitem__(self, index: Any, value: Any) -> None:
        # PyTorch would make a tensor without values of a list.
        parts = index if isinstance(index, tuple) else (index,)
        super().__setitem__(
            tuple(torch.tensor(part, dtype=torch.long) if isinstance(part, list) else part for part in parts), value
        )

    def tolist(self) -> Any:
        return self.values.tolist()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return compute(func, args, kwargs or {})


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The result of an operation.

    Raises:
        RuntimeError: it has tensors of both devices.
    """
    if func is torch.ops.prim.device.default:
        return DEVICE
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    on_device = [x for x in tensors if isinstance(x, OnDevice)]
    assert not any(x.is_meta for x in tensors if not isinstance(x, OnDevice)), f"{func} has a tensor without values"
    if on_device and func not in BETWEEN_DEVICES:
        needed = args[:1] if func in INDEXING else tensors
        if not all(isinstance(x, OnDevice) or x.dim() == 0 for x in needed):
            shapes = [tuple(x.shape) for x in tensors if not isinstance(x, OnDevice)]
            raise RuntimeError(f"{func} has tensors of the CPU, {shapes}, beside others.")
    target = kwargs.get("device")
    if func is aten.copy_.default:
        to_device = isinstance(args[0], OnDevice)
    else:
        to_device = bool(on_device) if target is None else torch.device(target) == DEVICE
    if target is not None:
        kwargs = {**kwargs, "device": "cpu"}
    values, options = tree_map_only(OnDevice, lambda x: x.values, (args, kwargs))
    result = AT_ONCE.get(func, func)(*values, **options)
    written = [x for x, argument in zip(args, func._schema.arguments, strict=False) if argument.is_write]
    if len(written) == 1:  # the result is this argument
        return written[0]
    return tree_map_only(Tensor, OnDevice, result) if to_device else result


class EmulatedDevice(TorchDispatchMode):
    """Within the context there is the emulated device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})
