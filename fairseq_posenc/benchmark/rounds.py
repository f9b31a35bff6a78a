"""Runs rounds in which every model does the same work, in rotating order, and times them."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch

from ..errors import Refusal
from .results import BenchmarkError, Result

Work = TypeVar("Work")

#: the name of stock fairseq's model, with which all others are compared
STOCK = "stock"

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}

#: errors of encodings, fairseq and torch for a model that cannot be built or run; out of memory is a RuntimeError
REFUSALS = (ValueError, AssertionError, RuntimeError)


@dataclass(frozen=True)
class Clock:
    """Measures the time of a function.

    Args:
        kind: "wall", or "cpu" for the CPU seconds of this process, for a machine with other jobs.
        device: "cpu" or "cuda"; the clock waits until the GPU is idle.
    """

    kind: str = "wall"
    device: str = "cpu"

    def seconds(self, work: Callable[[], Any]) -> float:
        """The seconds of ``work()``, with Python's garbage collector disabled.

        A full collection takes as long as a round of a small model, and would be attributed to an arbitrary model.
        """
        now = CLOCKS[self.kind]
        synchronize(self.device)
        gc.disable()
        try:
            start = now()
            work()
            synchronize(self.device)
            return now() - start
        finally:
            gc.enable()


@dataclass(frozen=True)
class Timing:
    """Seconds of one model and of stock fairseq in each round, without the warm-up."""

    own: list[float] = field(default_factory=list)
    stock: list[float] = field(default_factory=list)
    refused: str | None = None


def race(
    builders: Mapping[str, Callable[[], Callable[[Work], Any]]],
    works: Sequence[Work],
    clock: Clock,
    group: int = 6,
) -> dict[str, Timing]:
    """Times every model on every work item.

    Args:
        builders: by name, functions that build a model and return the function to time; ``STOCK`` must be included.
        works: the work item of each round; the first round warms up.
        group: number of models in memory at the same time, in addition to stock. Each group runs stock again.

    Returns:
        timings by name; stock's include the rounds of all groups. A model that cannot be built or run has the reason
        in ``refused``.

    Raises:
        BenchmarkError: stock fairseq cannot be built or run.
    """
    others = [name for name in builders if name != STOCK]
    groups = [others[start : start + group] for start in range(0, len(others), group)] or [[]]
    timings: dict[str, Timing] = {STOCK: Timing()}
    for names in groups:
        seconds, refused = _race_group({name: builders[name] for name in (STOCK, *names)}, works, clock)
        timings |= {name: Timing(seconds[name], seconds[STOCK]) for name in seconds if name != STOCK}
        timings |= {name: Timing(refused=why) for name, why in refused.items()}
        timings[STOCK].own.extend(seconds[STOCK])
        timings[STOCK].stock.extend(seconds[STOCK])
    return {name: timings[name] for name in builders}


def _race_group(
    builders: Mapping[str, Callable[[], Callable[[Work], Any]]], works: Sequence[Work], clock: Clock
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """The seconds of each model in each round, without the warm-up, and the reasons for models that were refused."""
    runners: dict[str, Callable[[Work], Any]] = {}
    refused: dict[str, str] = {}
    for name, build in builders.items():
        try:
            runners[name] = build()
        except REFUSALS as error:
            refused[name] = refuse(name, error)
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    for number, work in enumerate(works):
        print(f"round {number} of {len(works) - 1}: {', '.join(runners)}", file=sys.stderr)  # 0 is the warm-up
        for name in rotated(list(runners), number):
            try:
                taken = clock.seconds(partial(runners[name], work))
            except REFUSALS as error:
                refused[name] = refuse(name, error)
                del runners[name], seconds[name]
            if name in refused:
                free()  # after the except block, since the error's traceback refers to the model
            elif number > 0:
                seconds[name].append(taken)
    runners.clear()
    free()
    return seconds, refused


def rotated(names: list[Work], number: int) -> list[Work]:
    """The names in the order of this round, rotated by one in each round."""
    shift = number % len(names)
    return names[shift:] + names[:shift]


def refuse(name: str, error: Exception) -> str:
    """The reason for which a model cannot be measured, in one line.

    Raises:
        BenchmarkError: the model is stock fairseq, without which there is no comparison.
    """
    line = (str(error).splitlines() or [""])[0]
    why = line if type(error) is ValueError or isinstance(error, Refusal) else f"{type(error).__name__}: {line}"
    if name == STOCK:
        raise BenchmarkError(f"stock fairseq itself cannot be measured with these flags: {why}") from error
    return why


def rates(
    measure: str, setting: str, unit: str, amounts: Sequence[float], timings: Mapping[str, Timing]
) -> list[Result]:
    """Converts timings to rates per second.

    Args:
        amounts: the amount of work, for example words, in each round without the warm-up.
    """

    def per_second(seconds: list[float]) -> list[float]:
        # stock's timings repeat the rounds for each group
        return [amounts[number % len(amounts)] / taken for number, taken in enumerate(seconds)]

    return [
        Result(measure, setting, name, unit, per_second(timing.own), per_second(timing.stock), timing.refused)
        for name, timing in timings.items()
    ]


def synchronize(device: str) -> None:
    """Waits until the device has finished its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def free() -> None:
    """Frees unused memory; garbage collection is necessary since fairseq's trainers contain reference cycles."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
