"""Every registered encoding with the values of its options worth testing: a new one is tested by being there."""

from typing import Any

import pytest

from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.base import SHARING, parse_bool

#: beside the default, for options of which any encoding may have some; a choice or a bool is tried in every value
INTERESTING: dict[str, tuple[Any, ...]] = {"clipping_distance": (0, 1, 3, 64)}


def _variants() -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for name, cls in ENCODINGS.items():
        found.append((name, {}))
        for option, meaning in cls.options.items():
            values = (
                INTERESTING.get(option) or meaning.choices or ((True, False) if meaning.parse is parse_bool else ())
            )
            assert values, f"say in tests/variants.py which values of {option} are interesting"
            found += [(name, {option: value}) for value in values]
        if "clipping_distance" in cls.options and "position_sharing" in cls.options:
            found += [(name, {"clipping_distance": 2, "position_sharing": sharing}) for sharing in SHARING]
    found.append(("shaw", {"relative_keys": False, "relative_values": False}))
    return found


VARIANTS = [
    pytest.param(name, options, id="-".join([name, *(f"{key}={value}" for key, value in options.items())]))
    for name, options in _variants()
]


def ignores_order(name: str, options: dict[str, Any]) -> bool:
    """Whether an encoder with this encoding cannot tell the order of its words."""
    silent = options.get("relative_keys") is False and options.get("relative_values") is False
    return name == "nopos" or options.get("clipping_distance") == 0 or silent
