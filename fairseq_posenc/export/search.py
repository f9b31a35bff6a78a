"""Translates sentences with fairseq, for comparison with CTranslate2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from ..scoring import batches, source_batch
from ..trained import Trained

#: fairseq-generate's --max-len-b
LONGEST_OUTPUT = 200
#: source tokens of a batch
BATCH_TOKENS = 4000


@dataclass(frozen=True)
class Search:
    """The settings of a beam search. Both systems divide log P by length^lenpen, where the length includes </s>."""

    beam: int = 5
    lenpen: float = 1.0


def make_generator(trained: Trained, search: Search) -> Any:
    return SequenceGenerator(
        [trained.model],
        trained.target,
        beam_size=search.beam,
        len_penalty=search.lenpen,
        max_len_b=LONGEST_OUTPUT,
    )


def generate(trained: Trained, generator: Any, sources: Sequence[Tensor]) -> list[Tensor]:
    """The best translation of each sentence of one batch, with </s>."""
    finished = generator.generate([trained.model], {"net_input": source_batch(trained, sources)})
    return [hypotheses[0]["tokens"] for hypotheses in finished]


def translate(trained: Trained, search: Search, sources: Sequence[Tensor]) -> list[Tensor]:
    """The best translation of each sentence, with </s>."""
    generator = make_generator(trained, search)
    found: dict[int, Tensor] = {}
    for numbers in batches(sources, BATCH_TOKENS):
        hypotheses = generate(trained, generator, [sources[number] for number in numbers])
        found.update(zip(numbers, hypotheses, strict=True))
    return [found[number] for number in range(len(sources))]
