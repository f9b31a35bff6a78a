"""Benchmarks how time and memory of a training step grow with the sentence length n, at a fixed batch size in tokens.

At a fixed number of tokens, operations on single tokens cost the same at every n, and operations on pairs of tokens
grow linearly with n. The exponents are therefore one less than those for a single sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fairseq.tasks.translation import TranslationTask

from .data import fixed_batch
from .memory import measure_memory
from .models import Candidate, Setup
from .results import Result
from .rounds import Clock, race
from .training import trainer_step

TIME, MEMORY = "growth of time", "growth of memory"


def measure_growth(
    setup: Setup,
    task: TranslationTask,
    candidates: Sequence[Candidate],
    lengths: Sequence[int],
    tokens: int,
    rounds: int,
    clock: Clock,
    group: int,
) -> list[Result]:
    """Measures seconds and MiB of a training step at each length."""
    builders = {candidate.name: partial(trainer_step, candidate, setup, task) for candidate in candidates}
    found: list[Result] = []
    for length in lengths:
        works = [[fixed_batch(task, length, tokens, setup.seed + number)] for number in range(rounds + 1)]
        found += [
            Result(TIME, f"n = {length}", name, "s", timing.own, timing.stock, timing.refused)
            for name, timing in race(builders, works, clock, group).items()
        ]
    return found + measure_memory(MEMORY, setup, task, candidates, lengths, tokens)
