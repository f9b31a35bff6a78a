"""Compares the ``made_from`` of two experiments, nested dictionaries of all that their results depend on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

#: the value of a key that only the other experiment records, since defaults are not recorded
DEFAULT = "the default"

Keys = tuple[str, ...]
Difference = tuple[Keys, Any, Any]


def differences(one: Any, other: Any, keys: Keys = ()) -> Iterator[Difference]:
    """Yields (keys, value in `one`, value in `other`) for each value that differs."""
    if DEFAULT in (one, other) and any(isinstance(side, Mapping) for side in (one, other)):
        one, other = ({} if side == DEFAULT else side for side in (one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted(one.keys() | other.keys()):
            yield from differences(one.get(key, DEFAULT), other.get(key, DEFAULT), (*keys, str(key)))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other) > 1:
        for number, pair in enumerate(zip(one, other, strict=True), 1):
            yield from differences(*pair, (*keys, str(number)))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for pair in zip(one, other, strict=True):
            yield from differences(*pair, keys)
    elif one != other:
        yield keys, one, other


def apart(several: Sequence[Mapping[str, Any]]) -> list[str]:
    """What tells each of several from the others, as text: `training lr 0.01, prepare vocabulary the default`."""
    others = [{keys: values for keys, *values in differences(several[0], other)} for other in several]
    firsts = {keys: values[0] for found in others for keys, values in found.items()}
    return [
        ", ".join(f"{' '.join(keys)} {spelled(found.get(keys, (None, first))[1])}" for keys, first in firsts.items())
        for found in others
    ]


def spelled(value: Any) -> str:
    """A value as text, with checksums and commits shortened to their first digits."""
    if isinstance(value, list) and len(value) == 1:
        return spelled(value[0])
    text = str(value)
    for prefix in ("sha256:", "md5:"):
        if text.startswith(prefix):
            checksum, _, member = text.partition(" ")  # of an archive
            return " ".join(filter(None, [checksum[: len(prefix) + 10], member]))
    return text[:10] if len(text) == 40 and text.isalnum() else text


def is_explained(difference: Difference, flags: Iterable[str], other_architecture: bool, common: Iterable[str]) -> bool:
    """Whether the architectures or flags of two rows show this difference to a reader of the table.

    Args:
        difference: a difference between the rows.
        flags: names of the flags in which the rows differ, as typed.
        other_architecture: whether the rows have different architectures.
        common: keys of ``positions`` that any encoding may have, so that the architectures do not explain them.
    """
    path, *values = difference
    words = {name.replace("-", "_") for name in flags}
    if path[0] == "architecture" or words.intersection(path):
        return True
    if not other_architecture and not words.intersection({"source_position_encoding", "target_position_encoding"}):
        return False
    return (path[0] == "positions" and path[1] not in common) or (path[0] == "initial_values" and DEFAULT in values)
