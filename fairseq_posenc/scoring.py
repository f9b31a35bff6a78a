"""Forced scoring: the log-probabilities that a model gives to targets it is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from fairseq.data import data_utils
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

from .trained import Trained

#: tokens of the longer side of a batch, padding included, or the longest sentence; few, since the output is a
#: distribution for each token
BATCH_TOKENS = 2000


def batches(sources: Sequence[Tensor], targets: Sequence[Tensor] | None = None) -> Iterator[list[int]]:
    """Groups sentences, or pairs, of similar length, those of one source together; yields the indices of each batch."""
    lengths = [max(map(len, pair)) for pair in zip(sources, targets or sources, strict=True)]
    order = sorted(range(len(sources)), key=lambda number: (len(sources[number]), sources[number].tolist()))
    most = max([BATCH_TOKENS, *lengths])
    for batch in data_utils.batch_by_size(np.array(order, dtype=np.int64), lengths.__getitem__, max_tokens=most):
        yield [int(number) for number in batch]


def source_batch(trained: Trained, sources: Sequence[Tensor]) -> dict[str, Tensor]:
    """The input of the encoder, padded on the left as in fairseq-generate."""
    tokens = data_utils.collate_tokens(list(sources), trained.source.pad(), left_pad=True)
    lengths = torch.tensor([len(source) for source in sources])
    return {"src_tokens": tokens.to(trained.device), "src_lengths": lengths.to(trained.device)}


@torch.no_grad()
def log_probabilities(
    trained: Trained,
    sources: Sequence[Tensor],
    targets: Sequence[Tensor],
    suppressed: Sequence[int] = (),
) -> list[np.ndarray]:
    """Log-probability of each target token given its prefix, in nats.

    A source is encoded once for those of its targets that share a batch.

    Args:
        sources: one for each target; each ends in </s>.
        targets: may end in </s>.
        suppressed: indices that are excluded from the softmax.

    Returns:
        (length,) for each target.
    """
    by_target: dict[int, np.ndarray] = {}
    pad, eos = trained.target.pad(), trained.target.eos()
    for numbers in tqdm(list(batches(sources, targets)), unit="batch", leave=False, disable=None):
        chosen = [targets[number] for number in numbers]
        previous, wanted = (
            data_utils.collate_tokens(chosen, pad, eos, left_pad=False, move_eos_to_beginning=shifted).to(
                trained.device
            )
            for shifted in (True, False)
        )
        different: dict[tuple[int, ...], int] = {}
        rows = [different.setdefault(tuple(sources[number].tolist()), len(different)) for number in numbers]
        inputs = source_batch(trained, [torch.tensor(source) for source in different])
        encoded = trained.model.encoder(**inputs)
        if len(different) < len(rows):
            encoded = trained.model.encoder.reorder_encoder_out(encoded, torch.tensor(rows).to(trained.device))
        output = trained.model.decoder(previous, encoder_out=encoded)
        output[0][..., list(suppressed)] = float("-inf")
        scores = trained.model.get_normalized_probs(output, log_probs=True).gather(2, wanted[:, :, None])[:, :, 0]
        for number, row, target in zip(numbers, scores.cpu(), chosen, strict=True):
            by_target[number] = row[: len(target)].numpy()
    return [by_target[number] for number in range(len(targets))]
