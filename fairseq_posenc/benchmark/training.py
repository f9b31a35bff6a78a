"""Benchmarks training and forward passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from fairseq.tasks.translation import TranslationTask

from .data import words
from .models import Candidate, Setup, build_inference_model, build_trainer, to_device
from .results import Result
from .rounds import Clock, race, rates


def trainer_step(candidate: Candidate, setup: Setup, task: TranslationTask) -> Callable[[list[Any]], None]:
    """Makes a function that runs one update of fairseq's trainer on each batch: forward, backward, Adam."""
    trainer = build_trainer(candidate, setup, task)

    def step(batches: list[Any]) -> None:
        for batch in batches:
            # Without raise_oom the trainer would skip a batch that runs out of memory, and appear fast.
            trainer.train_step([batch], raise_oom=True)

    return step


def forward_pass(candidate: Candidate, setup: Setup, task: TranslationTask) -> Callable[[list[Any]], None]:
    """Makes a function that runs forward passes on source and reference without gradients.

    DIET's Table 1 calls this inference.
    """
    model = build_inference_model(candidate, setup, task)

    @torch.no_grad()
    def step(batches: list[Any]) -> None:
        for batch in batches:
            model(**to_device(batch, setup)["net_input"])

    return step


#: functions that make a step, by the name of the measure
STEPS = {"training": trainer_step, "forward": forward_pass}


def measure_words(
    measure: str,
    setting: str,
    setup: Setup,
    task: TranslationTask,
    candidates: Sequence[Candidate],
    rounds: Sequence[list[Any]],
    clock: Clock,
    group: int,
) -> list[Result]:
    """Measures target words per second.

    Args:
        measure: "training" or "forward".
        rounds: the batches of each round; the first round warms up.
    """
    builders = {candidate.name: partial(STEPS[measure], candidate, setup, task) for candidate in candidates}
    timings = race(builders, rounds, clock, group)
    return rates(measure, setting, "words/s", [words(batches) for batches in rounds[1:]], timings)
