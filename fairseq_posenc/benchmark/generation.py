"""Benchmarks generation: fairseq's beam search with incremental decoding and a fixed output length.

Without a fixed length, sentences/s would depend on the lengths of the outputs: an untrained model continues to the
maximum length. Therefore every hypothesis of a batch is as long as the batch's longest reference (``min_len`` and
``max_len_b``), so that all models take the same number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks.translation import TranslationTask

from .data import longest_target
from .models import Candidate, Setup, build_inference_model, to_device
from .results import Result
from .rounds import Clock, race, rates


def translator(candidate: Candidate, setup: Setup, task: TranslationTask, beam: int) -> Callable[[Any], Any]:
    """Makes a function that translates one batch as fairseq-generate does, and returns its hypotheses."""
    model = build_inference_model(candidate, setup, task)
    generator = task.build_generator([model], GenerationConfig(beam=beam, max_len_a=0))

    def step(batch: Any) -> Any:
        generator.min_len = generator.max_len_b = longest_target(batch)
        return task.inference_step(generator, [model], to_device(batch, setup))

    return step


def measure_generation(
    setting: str,
    setup: Setup,
    task: TranslationTask,
    candidates: Sequence[Candidate],
    rounds: Sequence[Any],
    clock: Clock,
    group: int,
    beam: int,
) -> list[Result]:
    """Measures sentences per second.

    Args:
        rounds: the batch of each round; the first round warms up.
    """
    builders = {candidate.name: partial(translator, candidate, setup, task, beam) for candidate in candidates}
    timings = race(builders, rounds, clock, group)
    return rates("generation", setting, "sentences/s", [batch["nsentences"] for batch in rounds[1:]], timings)
