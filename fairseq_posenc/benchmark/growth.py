"""How time and memory of a step of training grow with the length, at as many tokens a batch for every length.

What a Transformer does to each token by itself then costs the same at every n, and what it does to pairs of tokens
grows with n: the exponents are those of a batch, by one less than those of a sentence.
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
    """Seconds of a step, and its MiB, at each length."""
    builders = {candidate.name: partial(trainer_step, candidate, setup, task) for candidate in candidates}
    found: list[Result] = []
    for length in lengths:
        works = [[fixed_batch(task, length, tokens, setup.seed + number)] for number in range(rounds + 1)]
        found += [
            Result(TIME, f"n = {length}", name, "s", timing.own, timing.stock, timing.refused)
            for name, timing in race(builders, works, clock, group).items()
        ]
    return found + measure_memory(MEMORY, setup, task, candidates, lengths, tokens)
