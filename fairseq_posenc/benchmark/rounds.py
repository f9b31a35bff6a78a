"""Runs rounds in which every model does the same work, in rotating order, and compares them with stock fairseq."""

from __future__ import annotations

import gc
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch.utils.benchmark import timer as wall_clock

from ..errors import FlagError, Refusal

#: the name of stock fairseq's model, with which all others are compared
STOCK = "stock"

#: seconds by name: "wall" waits for the GPU; "cpu" counts CPU seconds of this process, on a machine with other jobs
CLOCKS: dict[str, Callable[[], float]] = {"wall": wall_clock, "cpu": time.process_time}

#: errors of encodings, fairseq and torch for a model that cannot be built or run; out of memory is a RuntimeError
_REFUSALS = (ValueError, AssertionError, RuntimeError)


class BenchmarkError(FlagError):
    """The benchmark cannot run; the message is one sentence for the user."""


@dataclass
class Result:
    """The figures of one model in one setting."""

    measure: str
    #: the corpus or the length
    setting: str
    encoding: str
    unit: str
    #: figures of each round in ``unit``, without the warm-up
    own: list[float] = field(default_factory=list)
    #: stock fairseq's figures of the same rounds
    stock: list[float] = field(default_factory=list)
    #: why the model could not be measured; None if it was
    refused: str | None = None

    @property
    def ratios(self) -> list[float]:
        """The ratio of own to stock's figure in each round."""
        return [own / stock for own, stock in zip(self.own, self.stock, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """All figures and their summary, for JSON."""
        if self.refused is not None:
            return asdict(self)
        low, middle, high = quartiles(self.ratios)
        summary = {"ratios": self.ratios, "ratio": middle, "ratio_quartiles": [low, high]}
        return {**asdict(self), "median": statistics.median(self.own), **summary}


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile; a single value is all three."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def race(
    builders: Mapping[str, Callable[[], Callable[[Any], Any]]],
    works: Sequence[Any],
    figure: Callable[[float, Any], float],
    clock: Callable[[], float] = wall_clock,
    group: int = 6,
    *,
    measure: str,
    setting: str,
    unit: str,
) -> list[Result]:
    """Times every model on every work item.

    Args:
        builders: by name of the model, functions that build it and return the function to time. The first is that with
            which all others are compared.
        works: the work item of each round; the first round warms up.
        figure: converts the seconds of a round and its work item to a figure in the unit of the results.
        group: number of models in memory at the same time, in addition to the first. Each group runs that again.
        measure, setting, unit: those of the results.

    Raises:
        BenchmarkError: the first cannot be built or run.
    """
    of_name = {name: Result(measure, setting, name, unit) for name in builders}
    first, *others = of_name
    for start in range(0, max(len(others), 1), group):
        steps = {}
        for name in (first, *others[start : start + group]):
            with refusing(of_name[name], name == first):
                steps[name] = builders[name]()
        for number, work in enumerate(works):
            print(f"round {number} of {len(works) - 1}: {', '.join(steps)}", file=sys.stderr)  # 0 is the warm-up
            found = {}
            names, shift = list(steps), number % len(steps)
            for name in names[shift:] + names[:shift]:
                with refusing(of_name[name], name == first):
                    # Without garbage collection, which takes as long as a round of a small model.
                    seconds = timeit.timeit(partial(steps[name], work), timer=clock, number=1)
                    found[name] = figure(seconds, work)
                if name not in found:
                    del steps[name]
                    free()
            for name in found if number > 0 else ():
                of_name[name].own.append(found[name])
                of_name[name].stock.append(found[first])
        steps.clear()
        free()
    return list(of_name.values())


@contextmanager
def refusing(result: Result, is_baseline: bool) -> Iterator[None]:
    """Records why a model cannot be built or run, in one line, instead of its figures.

    Raises:
        BenchmarkError: it is the model with which all others are compared.
    """
    try:
        yield
    except _REFUSALS as error:
        line = (str(error).splitlines() or [""])[0]
        plain = type(error) is ValueError or isinstance(error, Refusal)
        result.refused = line if plain else f"{type(error).__name__}: {line}"
        result.own.clear()
        result.stock.clear()
        if is_baseline:
            raise BenchmarkError(
                f"{result.encoding} itself, with which others are compared, cannot be measured: {result.refused}"
            ) from error


def free() -> None:
    """Frees unused memory; garbage collection is necessary since fairseq's trainers contain reference cycles."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
