"""Speed of generation: fairseq's own cached beam search, with outputs of one length for all models.

An untrained model goes on to the longest output that it may give, and a trained one stops where it will: sentences/s
would tell of lengths, not of speed. So every hypothesis of a batch is made exactly as long as the batch's longest
reference: the search may end neither sooner (``min_len``) nor later (``max_len_b``), all models take the same number
of steps, and what they say does not matter.
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
    """Translates one batch as fairseq-generate does; returns its hypotheses."""
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
    beam: int = 5,
) -> list[Result]:
    """Sentences a second.

    Args:
        rounds: the batch of each; the first round is not counted.
    """
    builders = {candidate.name: partial(translator, candidate, setup, task, beam) for candidate in candidates}
    timings = race(builders, rounds, clock, group)
    return rates("generation", setting, "sentences/s", [batch["nsentences"] for batch in rounds[1:]], timings)
