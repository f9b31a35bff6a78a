"""Benchmarks peak memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from fairseq.tasks.translation import TranslationTask
from torch.profiler import ProfilerActivity, profile, record_function

from .data import fixed_batch
from .models import Candidate, Setup
from .results import Result
from .rounds import REFUSALS, STOCK, free, refuse
from .training import trainer_step

MIB = 2**20
_MEASURED = "fairseq_posenc: the measured step"


def peak_bytes(prepare: Callable[[], Callable[[], Any]], device: str) -> int:
    """Peak memory of tensors, in bytes, during the second call of the step that ``prepare`` returns.

    The first call warms up: it allocates the optimizer's state and caches. All tensors that ``prepare`` and the step
    allocate count: parameters, gradients, the optimizer's state and intermediate results. On a CPU it is the sum of the
    allocations and releases in torch's profiler, which is exact and reproducible; on a GPU it is
    torch.cuda.max_memory_allocated.
    """
    free()
    return _peak_on_gpu(prepare) if device == "cuda" else _peak_on_cpu(prepare)


def _peak_on_gpu(prepare: Callable[[], Callable[[], Any]]) -> int:
    before = torch.cuda.memory_allocated()
    step = prepare()
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _peak_on_cpu(prepare: Callable[[], Callable[[], Any]]) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step = prepare()
        step()
        with record_function(_MEASURED):
            step()
    assert profiler.profiler is not None
    results = profiler.profiler.kineto_results
    assert results is not None
    events = sorted(results.events(), key=lambda event: event.start_ns())
    alive = peak = 0
    measured = False
    for event in events:
        if event.name() == _MEASURED:
            measured, peak = True, alive
        elif event.name() == "[memory]":
            alive += event.nbytes()
            if measured:
                peak = max(peak, alive)
    assert measured, "the profiler has lost the measured step"
    return peak


def compare_peaks(
    measure: str, setting: str, prepares: Mapping[str, Callable[[], Callable[[], Any]]], device: str
) -> list[Result]:
    """Measures the peak MiB of each model, one at a time.

    Args:
        prepares: the arguments of :func:`peak_bytes` by name, stock first.
    """
    found: list[Result] = []
    stock: list[float] = []
    for name, prepare in prepares.items():
        try:
            own = [peak_bytes(prepare, device) / MIB]
        except REFUSALS as error:
            found.append(Result(measure, setting, name, "MiB", refused=refuse(name, error)))
        else:
            stock = own if name == STOCK else stock
            found.append(Result(measure, setting, name, "MiB", own, stock))
    return found


def measure_memory(
    measure: str,
    setup: Setup,
    task: TranslationTask,
    candidates: Sequence[Candidate],
    lengths: Sequence[int],
    tokens: int,
) -> list[Result]:
    """Measures the peak MiB of a training step at each length, with the same number of tokens in a batch."""
    found: list[Result] = []
    for length in lengths:
        batch = fixed_batch(task, length, tokens, setup.seed)
        prepares = {candidate.name: partial(_step, candidate, setup, task, batch) for candidate in candidates}
        found += compare_peaks(measure, f"n = {length}", prepares, setup.device)
    return found


def _step(candidate: Candidate, setup: Setup, task: TranslationTask, batch: Any) -> Callable[[], Any]:
    return partial(trainer_step(candidate, setup, task), [batch])
