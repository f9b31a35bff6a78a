"""Compares nested dictionaries of all that the results of experiments depend on."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

#: the value of a key that only other experiments record, since defaults are not recorded
DEFAULT = "the default"

Keys = tuple[str, ...]


def by_setting(several: Sequence[Any], keys: Keys = ()) -> dict[Keys, list[Any]]:
    """The values of each setting in which several differ, in their order; those of a list have numbers if needed."""
    if all(one == several[0] for one in several):
        return {}
    if not any(isinstance(one, Mapping | list) for one in several):
        return {keys: list(several)}
    sides = [_parts(one) for one in several]
    names = sorted({name for side in sides for name in side})
    values: dict[Keys, list[Any]] = {}
    for name in names:
        path = keys if names == ["1"] else (*keys, name)
        values |= by_setting([side.get(name, DEFAULT) for side in sides], path)
    return values


def _parts(value: Any) -> Mapping[str, Any]:
    """The values in a mapping by their keys, or in a list by their numbers; another value counts as a list of one."""
    if isinstance(value, Mapping):
        return value
    several = value if isinstance(value, list) else [] if value == DEFAULT else [value]
    return {str(number): one for number, one in enumerate(several, 1)}


def apart(several: Sequence[Mapping[str, Any]]) -> list[str]:
    """What tells each of several from the others, as text: `training lr 0.01, prepare vocabulary the default`."""
    settings = by_setting(several)
    return [
        ", ".join(f"{' '.join(keys)} {spelled(values[number])}" for keys, values in settings.items())
        for number in range(len(several))
    ]


def spelled(value: Any) -> str:
    """A value as text, with checksums and commits shortened to their first digits."""
    return re.sub(r"[0-9a-f]{32,}", lambda digits: digits[0][:10], str(value))


def is_shown(keys: Keys, value: Any, flags: str) -> bool:
    """Whether the architecture or the flags of a row of a table show this value to a reader."""
    if keys[0] in ("architecture", "positions"):  # earlier versions recorded flags of encodings as positions
        return True
    if keys[0] == "initial_values" and value == DEFAULT:
        return True  # another encoding
    words = flags.split()
    if keys[-1] == "total_num_update" and ("--max-update", str(value)) in pairwise(words):
        return True  # `auto`, which is that number
    return any(f"--{key.replace('_', '-')}" in words for key in keys)
