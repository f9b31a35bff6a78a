"""Compares nested dictionaries of all that the results of experiments depend on."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

#: the value of a key that only other experiments record, since defaults are not recorded
DEFAULT = "the default"

Keys = tuple[str, ...]


def by_setting(several: Sequence[Mapping[str, Any]]) -> dict[Keys, list[Any]]:
    """The values of each setting in which several differ, in their order."""
    flat = [_flat(one) for one in several]
    values = {keys: [one.get(keys, DEFAULT) for one in flat] for keys in sorted({keys for one in flat for keys in one})}
    return {keys: found for keys, found in values.items() if any(one != found[0] for one in found)}


def _flat(value: Any, keys: Keys = ()) -> dict[Keys, Any]:
    """All values by their keys; those of a list have numbers if there are several."""
    if isinstance(value, list) and value:
        value = {str(number): one for number, one in enumerate(value, 1)} if len(value) > 1 else value[0]
        return _flat(value, keys)
    if not isinstance(value, Mapping):
        return {keys: value}
    return {path: one for key in value for path, one in _flat(value[key], (*keys, str(key))).items()}


def apart(several: Sequence[Mapping[str, Any]]) -> list[str]:
    """What tells each of several from the others, as text: `training lr 0.01, prepare vocabulary the default`."""
    settings = by_setting(several)
    return [
        ", ".join(f"{' '.join(keys)} {spelled(values[number])}" for keys, values in settings.items())
        for number in range(len(several))
    ]


def spelled(value: Any) -> str:
    """A value as text, with checksums and commits shortened to their first digits."""
    return re.sub(r"[0-9a-f]{32,}", lambda found: found[0][:10], str(value))


def is_shown(keys: Keys, value: Any, flags: str) -> bool:
    """Whether the architecture or the flags of a row of a table show this value to a reader."""
    if keys[0] in ("architecture", "positions"):  # earlier versions recorded flags of encodings as positions
        return True
    if keys[0] == "initial_values" and value == DEFAULT:
        return True  # another encoding
    return any(f"--{key.replace('_', '-')}" in flags.split() for key in keys)
