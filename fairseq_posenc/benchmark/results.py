"""What a measure found: the figures of each round, and their ratios to stock's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import FlagError


class BenchmarkError(FlagError):
    """Nothing can be measured: its text is one sentence for the user."""


@dataclass(frozen=True)
class Result:
    """One encoding in one setting."""

    measure: str
    #: what it was measured on: a corpus, or a length
    setting: str
    encoding: str
    unit: str
    #: of each counted round, in ``unit``
    own: list[float] = field(default_factory=list)
    #: stock's of the same rounds
    stock: list[float] = field(default_factory=list)
    #: why there are no figures
    refused: str | None = None

    @property
    def ratios(self) -> list[float]:
        """Own by stock's, round by round."""
        return [own / stock for own, stock in zip(self.own, self.stock, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        found = asdict(self)
        if self.refused is None:
            low, middle, high = quartiles(self.ratios)
            found |= {
                "median": statistics.median(self.own),
                "ratios": self.ratios,
                "ratio": middle,
                "ratio_quartiles": [low, high],
            }
        return found


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile; of one value, that value."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def exponent(lengths: Sequence[float], values: Sequence[float]) -> float:
    """e of the values ~ lengths ** e that fits best: the slope of a line through their logarithms."""
    return statistics.linear_regression([math.log(n) for n in lengths], [math.log(value) for value in values]).slope
