"""Rounds in which every model does the same work, in an order that rotates."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import click
import torch

from .results import BenchmarkError, Result

Work = TypeVar("Work")

#: the model that all others are compared with
STOCK = "stock"

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}

#: what encodings, fairseq and torch raise where something cannot be built or run; lack of memory is a RuntimeError
REFUSALS = (ValueError, AssertionError, RuntimeError)


@dataclass(frozen=True)
class Clock:
    """Takes the time of work.

    Args:
        kind: "wall", or "cpu" for the CPU seconds of this process, on a machine that others use too.
        device: "cpu" or "cuda", whose queue is waited for.
    """

    kind: str = "wall"
    device: str = "cpu"

    def seconds(self, work: Callable[[], Any]) -> float:
        """How long ``work()`` takes, without Python's garbage collector: a full collection takes as long as a small
        model's whole round, and falls to whoever comes next.
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
    """Seconds of one model in each counted round, and stock's in the same rounds."""

    own: list[float] = field(default_factory=list)
    stock: list[float] = field(default_factory=list)
    refused: str | None = None


def race(
    builders: Mapping[str, Callable[[], Callable[[Work], Any]]],
    works: Sequence[Work],
    clock: Clock,
    group: int = 6,
) -> dict[str, Timing]:
    """Times every model on every work.

    Args:
        builders: makes a model that is ready to work, by name; ``STOCK`` among them.
        works: what each model does, round by round; the first round warms up and is not counted.
        group: as many models are in memory at once, beside stock: each group has its own rounds of stock.

    Returns:
        by name; stock's own are those of all groups. What cannot be built or run is refused with its reason.

    Raises:
        BenchmarkError: stock itself cannot.
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
    """Seconds of each model in each counted round, and why the others have none."""
    runners: dict[str, Callable[[Work], Any]] = {}
    refused: dict[str, str] = {}
    for name, build in builders.items():
        try:
            runners[name] = build()
        except REFUSALS as error:
            refused[name] = refuse(name, error)
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    for number, work in enumerate(works):
        click.echo(f"round {number} of {len(works) - 1}: {', '.join(runners)}", err=True)  # 0 is the warm-up
        for name in rotated(list(runners), number):
            try:
                taken = clock.seconds(partial(runners[name], work))
            except REFUSALS as error:
                refused[name] = refuse(name, error)
                del runners[name], seconds[name]
            if name in refused:
                free()  # not before the error is gone, whose traceback holds the model
            elif number > 0:
                seconds[name].append(taken)
    runners.clear()
    free()
    return seconds, refused


def rotated(names: list[Work], number: int) -> list[Work]:
    """The order of a round: each model comes first in turn."""
    shift = number % len(names)
    return names[shift:] + names[:shift]


def refuse(name: str, error: Exception) -> str:
    """Why an encoding has no figures, in one line.

    Raises:
        BenchmarkError: it is stock that fails, so that there is nothing to compare with.
    """
    lines = str(error).splitlines() or [""]
    why = (
        lines[0]
        if type(error) is ValueError or isinstance(error, BenchmarkError)
        else f"{type(error).__name__}: {lines[0]}"
    )
    if name == STOCK:
        raise BenchmarkError(f"stock fairseq itself cannot be measured with these flags: {why}") from error
    return why


def rates(
    measure: str, setting: str, unit: str, amounts: Sequence[float], timings: Mapping[str, Timing]
) -> list[Result]:
    """Amounts a second.

    Args:
        amounts: of each counted round, for example words.
    """

    def per_second(seconds: list[float]) -> list[float]:
        # stock's are those of several groups
        return [amounts[number % len(amounts)] / taken for number, taken in enumerate(seconds)]

    return [
        Result(measure, setting, name, unit, per_second(timing.own), per_second(timing.stock), timing.refused)
        for name, timing in timings.items()
    ]


def synchronize(device: str) -> None:
    """Waits for what was given to the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def free() -> None:
    """Gives the memory of what nobody holds any more back; fairseq's trainers hold themselves in cycles."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
