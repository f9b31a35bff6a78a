"""Measures peak memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from .rounds import free

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
