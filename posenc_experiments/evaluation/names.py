"""Names of rows as tables and figures show them: what all rows share stands above a table, not in their names."""

import re
from collections.abc import Iterable


def split_shared(names: Iterable[str]) -> tuple[list[str], str]:
    """The names without the flags that all of them have, and these flags.

    Names stay as they are if different ones would become equal.
    """
    whole = list(names)
    parts = [re.split(r" (?=--[a-z])", name) for name in whole]
    shared = [flag for flag in parts[0][1:] if all(flag in flags for _, *flags in parts)]
    short = [" ".join([name, *(flag for flag in flags if flag not in shared)]) for name, *flags in parts]
    if len(set(short)) < len(set(whole)):
        return whole, ""
    return short, " ".join(shared)
