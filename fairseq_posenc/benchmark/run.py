"""Runs each measure by name, with its default corpus and lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .attention import measure_attention
from .data import Corpus, binarized_corpus, synthetic_corpus, synthetic_task
from .generation import measure_generation
from .growth import measure_growth
from .memory import measure_memory
from .models import Candidate, Setup
from .results import BenchmarkError, Result
from .rounds import Clock
from .training import measure_words


@dataclass(frozen=True)
class Plan:
    """The settings of a benchmark.

    Args:
        setup: settings that the models have in common.
        candidates: the models, stock first.
        data: directories of binarized corpora; random sentences are used if empty.
        rounds: number of rounds, without the warm-up.
        updates: number of batches in a round of training or of forward passes.
        tokens: tokens in a batch.
        sentences: sentences in a batch of generation.
        lengths: sentence lengths, for measures at fixed lengths; None for the defaults of each measure.
        group: number of models in memory at the same time, in addition to stock.
    """

    setup: Setup
    candidates: list[Candidate]
    clock: Clock
    data: tuple[Path, ...] = ()
    rounds: int = 9
    updates: int = 2
    tokens: int = 2048
    sentences: int = 32
    beam: int = 5
    lengths: tuple[int, ...] | None = None
    group: int = 6
    vocabulary: int = 8000

    def corpora(self) -> Iterator[Corpus]:
        """Loads the corpora one after the other."""
        if not self.data:
            yield synthetic_corpus(self.vocabulary, self.setup.seed)
        names = [directory.name for directory in self.data]
        for directory in self.data:
            yield binarized_corpus(directory, directory.name if names.count(directory.name) == 1 else str(directory))


def _words(plan: Plan, measure: str) -> list[Result]:
    found: list[Result] = []
    for corpus in plan.corpora():
        # torch loads a library with the first padded batch, so the warm-up needs two batches, one of which is padded.
        first = max(2, plan.updates)
        batches = corpus.training_batches(first + plan.rounds * plan.updates, plan.tokens, plan.setup.seed)
        starts = range(first, len(batches), plan.updates)
        rounds = [batches[:first], *(batches[start : start + plan.updates] for start in starts)]
        found += measure_words(
            measure, corpus.name, plan.setup, corpus.task, plan.candidates, rounds, plan.clock, plan.group
        )
    return found


def _generation(plan: Plan) -> list[Result]:
    found: list[Result] = []
    for corpus in plan.corpora():
        batches = corpus.generation_batches(plan.rounds + 1, plan.sentences, plan.setup.seed)
        found += measure_generation(
            corpus.name, plan.setup, corpus.task, plan.candidates, batches, plan.clock, plan.group, plan.beam
        )
    return found


def _memory(plan: Plan) -> list[Result]:
    lengths = _lengths(plan, (32, 512))
    setup = replace(plan.setup, longest=max(lengths))
    return measure_memory("memory", setup, synthetic_task(plan.vocabulary), plan.candidates, lengths, plan.tokens)


def _growth(plan: Plan) -> list[Result]:
    lengths = _lengths(plan, (128, 256, 512, 1024, 2048))
    setup = replace(plan.setup, longest=max(lengths))
    return measure_growth(
        setup,
        synthetic_task(plan.vocabulary),
        plan.candidates,
        lengths,
        plan.tokens,
        plan.rounds,
        plan.clock,
        plan.group,
    )


def _attention(plan: Plan, measure: str, backward: bool) -> list[Result]:
    lengths = _lengths(plan, (128, 256, 512, 1024))
    return measure_attention(
        measure, plan.setup, plan.candidates, lengths, plan.tokens, plan.rounds, plan.clock, backward
    )


def _lengths(plan: Plan, default: tuple[int, ...]) -> Sequence[int]:
    """The lengths of the plan, or the default.

    Raises:
        BenchmarkError: a sentence does not fit in a batch.
    """
    lengths = plan.lengths or default
    if max(lengths) > plan.tokens:
        raise BenchmarkError(
            f"--tokens {plan.tokens}: a sentence of {max(lengths)} tokens does not fit in a batch; increase --tokens, "
            "or use shorter --lengths."
        )
    return lengths


#: the measures, by their name on the command line
MEASURES: dict[str, Callable[[Plan], list[Result]]] = {
    "training": lambda plan: _words(plan, "training"),
    "forward": lambda plan: _words(plan, "forward"),
    "generation": _generation,
    "memory": _memory,
    "growth": _growth,
    "attention": lambda plan: _attention(plan, "attention", backward=True),
    "attention-forward": lambda plan: _attention(plan, "attention-forward", backward=False),
}
