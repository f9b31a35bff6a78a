"""In what two experiments differ: their ``made_from``, nested dictionaries of what makes a result, value by value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

#: stands for a value that only one of the two records: defaults are not recorded
DEFAULT = "the default"
MOST = 4

Path = tuple[str, ...]
Difference = tuple[Path, Any, Any]


def differences(one: Any, other: Any, path: Path = ()) -> Iterator[Difference]:
    """(path, value in `one`, value in `other`) of each value in which they differ."""
    if DEFAULT in (one, other) and any(isinstance(side, Mapping) for side in (one, other)):
        one, other = ({} if side == DEFAULT else side for side in (one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted(one.keys() | other.keys()):
            yield from differences(one.get(key, DEFAULT), other.get(key, DEFAULT), (*path, str(key)))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other) > 1:
        for number, pair in enumerate(zip(one, other, strict=True), 1):
            yield from differences(*pair, (*path, str(number)))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for pair in zip(one, other, strict=True):
            yield from differences(*pair, path)
    elif one != other:
        yield path, one, other


def listed(found: Iterable[Difference]) -> str:
    """Differences as words: `training lr (0.01 and 0.03), prepare vocabulary (4000 and the default)`."""
    words = [f"{' '.join(path)} ({spelled(one)} and {spelled(other)})" for path, one, other in found]
    more = f" and {len(words) - MOST} more" if len(words) > MOST else ""
    return ", ".join(words[:MOST]) + more


def spelled(value: Any) -> str:
    """A value for a sentence: of a checksum or a commit the first digits."""
    if isinstance(value, list) and len(value) == 1:
        return spelled(value[0])
    text = str(value)
    for prefix in ("sha256:", "md5:"):
        if text.startswith(prefix):
            return text[: len(prefix) + 10]
    return text[:10] if len(text) == 40 and text.isalnum() else text


def is_explained(difference: Difference, flags: Iterable[str], other_architecture: bool, common: Iterable[str]) -> bool:
    """Whether a reader of a table sees this difference of two rows: their architectures or flags show it.

    Args:
        difference: one between the rows.
        flags: those in which the rows' own flags differ, as they are typed.
        other_architecture: whether the rows have different architectures.
        common: keys of ``positions`` that any encoding may have, which no architecture explains.
    """
    path, *values = difference
    words = {name.replace("-", "_") for name in flags}
    if path[0] == "architecture" or words.intersection(path):
        return True
    if not other_architecture and not words.intersection({"source_position_encoding", "target_position_encoding"}):
        return False
    return (path[0] == "positions" and path[1] not in common) or (path[0] == "initial_values" and DEFAULT in values)
