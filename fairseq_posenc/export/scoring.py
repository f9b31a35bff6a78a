"""Scores and translates sentences with fairseq, for comparison with CTranslate2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq.data import data_utils
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from ..trained import Trained

#: fairseq-generate's --max-len-b
LONGEST_OUTPUT = 200


@dataclass(frozen=True)
class Search:
    """The settings of a beam search. Both systems divide log P by length^lenpen, where the length includes </s>."""

    beam: int = 5
    lenpen: float = 1.0


def batches(sources: Sequence[Tensor], max_tokens: int) -> Iterator[list[int]]:
    """Groups sentences of similar length; yields the indices of each batch.

    Args:
        max_tokens: maximum number of source tokens of a batch including padding, raised to the longest sentence.
    """
    order = np.array(sorted(range(len(sources)), key=lambda number: len(sources[number])), dtype=np.int64)
    most = max(max_tokens, max(map(len, sources), default=0))
    for batch in data_utils.batch_by_size(order, lambda number: len(sources[number]), max_tokens=most):
        yield [int(number) for number in batch]


def pair_batches(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> Iterator[list[int]]:
    """Groups pairs by their longer side; batches are small, since the output is a distribution for each token."""
    return batches([max(pair, key=len) for pair in zip(sources, targets, strict=True)], max_tokens=2000)


def source_batch(trained: Trained, sources: Sequence[Tensor]) -> dict[str, Tensor]:
    """The input of the encoder, padded on the left as in fairseq-generate."""
    tokens = data_utils.collate_tokens(list(sources), trained.source.pad(), left_pad=True)
    return {"src_tokens": tokens, "src_lengths": torch.tensor([len(source) for source in sources])}


@torch.no_grad()
def log_probabilities(
    trained: Trained,
    sources: Sequence[Tensor],
    targets: Sequence[Tensor],
    suppressed: Sequence[int] = (),
) -> list[np.ndarray]:
    """Log-probability of each target token given its prefix, in nats.

    Args:
        sources: each ends in </s>.
        targets: may end in </s>.
        suppressed: indices that are excluded from the softmax.

    Returns:
        (length,) for each target.
    """
    found: dict[int, np.ndarray] = {}
    for numbers in pair_batches(sources, targets):
        pad, eos = trained.target.pad(), trained.target.eos()
        chosen = [targets[number] for number in numbers]
        previous = data_utils.collate_tokens(chosen, pad, eos, left_pad=False, move_eos_to_beginning=True)
        inputs = source_batch(trained, [sources[number] for number in numbers])
        output = trained.model(**inputs, prev_output_tokens=previous)
        output[0][..., list(suppressed)] = float("-inf")
        scores = trained.model.get_normalized_probs(output, log_probs=True)
        for number, row, target in zip(numbers, scores, chosen, strict=True):
            found[number] = row[: len(target)].gather(1, target[:, None])[:, 0].numpy()
    return [found[number] for number in range(len(targets))]


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


def translate(trained: Trained, search: Search, sources: Sequence[Tensor], max_tokens: int = 4000) -> list[Tensor]:
    """The best translation of each sentence, with </s>."""
    generator = make_generator(trained, search)
    found: dict[int, Tensor] = {}
    for numbers in batches(sources, max_tokens):
        hypotheses = generate(trained, generator, [sources[number] for number in numbers])
        found.update(zip(numbers, hypotheses, strict=True))
    return [found[number] for number in range(len(sources))]
