"""Changes of a checkpoint's state, for files that tests alter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Change = Callable[[dict[str, Any]], object]
#: the fixture of this name
Altered = Callable[..., Path]


def model_flag(name: str, value: object) -> Change:
    return lambda state: setattr(state["cfg"]["model"], name, value)


def model_tensor(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Replaces a tensor of the model."""
    return lambda state: state["model"].update({name: change(state["model"][name])})
