"""Types of options that are numbers."""

import math
from typing import Any

import click

#: the largest number of words, processes and the like, so that a slip of the keyboard does not take all memory
MOST = 1_000_000


class Count(click.IntRange):
    """A whole number from `least` to `most`."""

    def __init__(self, least: int = 1, most: int = MOST) -> None:
        super().__init__(min=least, max=most)


class Positive(click.FloatRange):
    """A finite number above 0."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return float(number)
