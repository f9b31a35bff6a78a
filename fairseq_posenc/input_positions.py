"""fairseq's learned position embeddings with the gain of ``--bias-gain``."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from fairseq.modules import LearnedPositionalEmbedding
from torch import Tensor

from .encodings.shared.gain import LearnedScalars, resolve_gain, scale_around


class LearnedPositions(LearnedScalars, LearnedPositionalEmbedding):
    """fairseq's learned position embeddings, whose parameter ``weight`` is multiplied by a gain.

    Args:
        stock: fairseq's module; its parameter is reused and divided by the gain, so that its initial effect is the
            same.
        bias_gain: a positive number, or "auto" for the square root of the width, by which fairseq multiplies token
            embeddings too; None means 1.
    """

    scalars: ClassVar[dict[str, float]] = {"weight": 0.0}
    recorded_as: ClassVar[str] = "input_gain"

    def __init__(self, stock: LearnedPositionalEmbedding, bias_gain: float | str | None) -> None:
        # The meta device draws no random numbers, so that the initial values of other modules stay the same.
        with torch.device("meta"):
            super().__init__(stock.num_embeddings, stock.embedding_dim, stock.padding_idx)
        self.weight = stock.weight
        self.set_gain(resolve_gain(bias_gain, stock.embedding_dim))

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return scale_around(super().forward(*args, **kwargs), self.scalars["weight"], self.bias_gain)


def add_gain(stack: Any, bias_gain: float | str | None) -> None:
    """Applies the gain to the input positions of an encoder or decoder, if they are learned."""
    if isinstance(stack.embed_positions, LearnedPositionalEmbedding):
        stack.embed_positions = LearnedPositions(stack.embed_positions, bias_gain)
