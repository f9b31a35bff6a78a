"""fairseq's learned vectors of positions, which are added to the embeddings, with the gain of ``--bias-gain``."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from fairseq.modules import LearnedPositionalEmbedding
from torch import Tensor

from .encodings.shared.gain import LearnedScalars, resolve_gain, stretched


class LearnedPositions(LearnedScalars, LearnedPositionalEmbedding):
    """fairseq's module, with its parameter under its name, ``weight``, and vectors G times as large.

    Args:
        stock: the module whose parameter it takes over; the initial vectors stay what they are.
        bias_gain: a positive number, or "auto" for the square root of the vectors' width, by which fairseq multiplies
            token embeddings; None is 1.
    """

    scalars: ClassVar[dict[str, float]] = {"weight": 0.0}
    recorded_as: ClassVar[str] = "input_gain"

    def __init__(self, stock: LearnedPositionalEmbedding, bias_gain: float | str | None) -> None:
        with torch.device("meta"):  # draws no random numbers, so the seed gives the rest of the model the same values
            super().__init__(stock.num_embeddings, stock.embedding_dim, stock.padding_idx)
        self.weight = stock.weight
        self.set_gain(resolve_gain(bias_gain, stock.embedding_dim))

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return stretched(super().forward(*args, **kwargs), self.scalars["weight"], self.bias_gain)


def add_gain(stack: Any, bias_gain: float | str | None) -> None:
    """Puts the gain on what an encoder or decoder adds to its embeddings, where that is learned."""
    if isinstance(stack.embed_positions, LearnedPositionalEmbedding):
        stack.embed_positions = LearnedPositions(stack.embed_positions, bias_gain)
