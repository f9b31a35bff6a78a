"""The results of a measure: figures of each round, and their ratios to stock fairseq's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import FlagError


class BenchmarkError(FlagError):
    """The benchmark cannot run; the message is one sentence for the user."""


@dataclass(frozen=True)
class Result:
    """The result of one encoding in one setting."""

    measure: str
    #: the corpus or the length
    setting: str
    encoding: str
    unit: str
    #: figures of each round in ``unit``, without the warm-up
    own: list[float] = field(default_factory=list)
    #: stock fairseq's figures of the same rounds
    stock: list[float] = field(default_factory=list)
    #: why the encoding could not be measured; None if it was
    refused: str | None = None

    @property
    def ratios(self) -> list[float]:
        """The ratio of own to stock's figure in each round."""
        return [own / stock for own, stock in zip(self.own, self.stock, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """All figures and their summary, for JSON."""
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
    """Lower quartile, median and upper quartile; a single value is all three."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def exponent(lengths: Sequence[float], values: Sequence[float]) -> float:
    """The exponent e of the best fit values ~ lengths ** e: the slope of a regression of the logarithms."""
    return statistics.linear_regression([math.log(n) for n in lengths], [math.log(value) for value in values]).slope
