"""The device of the tests of a GPU."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map_only

from .emulation import DEVICE, EmulatedDevice, OnDevice


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.gpu)


def named_device() -> str:
    """What FAIRSEQ_POSENC_TEST_DEVICE names, to try these tests on a CPU, else the GPU, else nothing."""
    return os.environ.get("FAIRSEQ_POSENC_TEST_DEVICE", "cuda" if torch.cuda.is_available() else "")


@pytest.fixture(scope="session")
def gpu() -> str:
    """The GPU."""
    name = named_device()
    if not name:
        pytest.skip("there is no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return name


@pytest.fixture
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The GPU; without one, the emulated device."""
    if named_device():
        yield request.getfixturevalue("gpu")
        return
    make = torch.tensor

    def tensor(data: Any, device: Any = None, **options: Any) -> torch.Tensor:
        """PyTorch would make a tensor without values."""
        made = make(tree_map_only(OnDevice, lambda x: x.values, data), **options)
        return made if device is None else made.to(device)

    monkeypatch.setattr(torch, "tensor", tensor)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    with EmulatedDevice():
        yield str(DEVICE)
    torch.__future__.set_overwrite_module_params_on_conversion(False)
