"""Changes of a checkpoint's state, for files that tests alter."""

from collections.abc import Callable
from typing import Any

Change = Callable[[dict[str, Any]], object]


def model_flag(name: str, value: object) -> Change:
    return lambda state: setattr(state["cfg"]["model"], name, value)
