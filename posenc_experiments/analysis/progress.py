"""Progress of work that takes minutes."""

import time
from collections.abc import Callable


def every_ten_seconds(say: Callable[[str], None], units: str) -> Callable[[int, int], None]:
    """A function that says how many units, such as sentences, are done, at most once in ten seconds."""
    last = time.monotonic()

    def progress(done: int, of: int) -> None:
        nonlocal last
        if time.monotonic() - last >= 10:
            last = time.monotonic()
            say(f"{done:,} of {of:,} {units}")

    return progress
