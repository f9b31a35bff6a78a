"""fairseq's input positions, with the gain of ``--bias-gain`` and for the positions of an augmentation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.modules import LearnedPositionalEmbedding, SinusoidalPositionalEmbedding
from torch import Tensor

from .attention.module import current_positions
from .encodings.contract.gain import LearnedScalars, resolve_gain, scale_around, set_gain
from .errors import FlagError, few


def given_rows(padding_idx: Any) -> Tensor | None:
    """The row of each query in fairseq's tables, (batch, queries), or None if positions are 0, 1, 2, ...

    Row 0 of the positions is ``padding_idx + 1``; padding has row ``padding_idx``, which is zero.
    """
    stack = current_positions()
    if stack is None or stack.own.given is None:
        return None
    positions = stack.own
    rows = positions.query_positions + padding_idx + 1
    if positions.padding_mask is None:
        return rows
    return rows.masked_fill(positions.at_queries(positions.padding_mask), padding_idx)


class SinusoidalPositions(SinusoidalPositionalEmbedding):
    """fairseq's sinusoids, computed for positions of any value if these are given.

    Args:
        stock: fairseq's module.
    """

    #: the kind of --length-encoding, and its tokens of a translation per token of the source
    length_encoding: str | None = None
    length_ratio = 1.0

    def __init__(self, stock: SinusoidalPositionalEmbedding) -> None:
        super().__init__(stock.embedding_dim, stock.padding_idx, init_size=len(stock.weights))

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        rows = given_rows(self.padding_idx)
        if rows is None:
            vectors: Tensor = super().forward(input, *args, **kwargs)
        else:
            vectors = self.of_rows(rows).masked_fill(rows.eq(self.padding_idx)[..., None], 0).to(self.weights)
        return vectors if self.length_encoding is None else vectors + self._of_lengths().to(vectors)

    def _of_lengths(self) -> Tensor:
        """The length encoding of each query, (batch, queries, width).

        The length is the target's own, or in a generation that of the source times the ratio.
        """
        stack = current_positions()
        assert stack is not None, "only a decoder encodes lengths"
        own, first = stack.own, self.padding_idx + 1
        lengths = own.lengths
        # Of tokens, wherever an augmentation or a shift moves their positions.
        before = own.at_queries(own.tokens_before)
        if own.cache.generation is not None and stack.cross is not None:
            lengths = (self.length_ratio * stack.cross.lengths).round().long().clamp(min=1)
        if self.length_encoding == "difference":
            return self.of_rows(lengths - before + first)
        return self.of_rows(before + first, lengths)

    def of_rows(self, rows: Tensor, base: Tensor | float = 10000.0) -> Tensor:
        """The vectors of rows of fairseq's table, which may be real numbers, (..., width).

        Args:
            base: of the wavelengths; a tensor is broadcastable to rows.
        """
        half = self.embedding_dim // 2
        step = (math.log(base) if isinstance(base, float) else base.float().log()[..., None]) / (half - 1)
        frequencies = torch.exp(torch.arange(half, dtype=torch.float, device=rows.device) * -step)
        # In single precision, as fairseq, if positions are whole.
        angles = rows.to(torch.promote_types(rows.dtype, torch.float))[..., None] * frequencies
        vectors = torch.cat([angles.sin(), angles.cos()], dim=-1)
        return F.pad(vectors, (0, self.embedding_dim - 2 * half))


class PaperSinusoids(SinusoidalPositions):
    """The sinusoids of Vaswani et al. (2017), section 3.5, as the paper defines them.

    Dimensions 2i and 2i + 1 are sin(p / 10000^(2i/d)) and cos(p / 10000^(2i/d)). The paper does not say what the first
    position is; it is 0 here, as in tensor2tensor and the Annotated Transformer.
    """

    weights: Tensor

    def __init__(self, stock: SinusoidalPositionalEmbedding) -> None:
        super().__init__(stock)
        self._make(len(self.weights))

    def _make(self, length: int) -> None:
        """Makes the table that fairseq's module reads."""
        table = self.of_rows(torch.arange(length, device=self.weights.device))
        table[self.padding_idx] = 0
        self.weights = table.to(self.weights)

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        longest = self.padding_idx + 1 + input.size(1)
        if longest > len(self.weights):  # fairseq would append its own sinusoids
            self._make(longest)
        return super().forward(input, *args, **kwargs)

    def of_rows(self, rows: Tensor, base: Tensor | float = 10000.0) -> Tensor:
        exponents = torch.arange(0, self.embedding_dim, 2, dtype=torch.float64, device=rows.device)
        longest = base if isinstance(base, float) else base.double()[..., None]
        angles = (rows - self.padding_idx - 1)[..., None] * longest ** (-exponents / self.embedding_dim)
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., : self.embedding_dim]


class LearnedPositions(LearnedScalars, LearnedPositionalEmbedding):
    """fairseq's learned position embeddings, whose parameter ``weight`` is multiplied by a gain.

    Args:
        stock: fairseq's module; its parameter is reused and divided by the gain, so that its initial effect is the
            same.
        bias_gain: a positive number, or "auto" for the square root of the width, by which fairseq multiplies token
            embeddings too; None means 1.
    """

    scalars: ClassVar[dict[str, float]] = {"weight": 0.0}

    def __init__(self, stock: LearnedPositionalEmbedding, bias_gain: float | str | None) -> None:
        # The meta device draws no random numbers, so that the initial values of other modules stay the same.
        with torch.device("meta"):
            super().__init__(stock.num_embeddings, stock.embedding_dim, stock.padding_idx)
        self.weight = stock.weight
        set_gain(self, resolve_gain(bias_gain, stock.embedding_dim))

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        stack: Any = current_positions()
        padding_idx: Any = self.padding_idx
        rows = given_rows(padding_idx)
        if rows is None:
            vectors = super().forward(input, *args, **kwargs)
        elif stack.own.extent[0] > self.max_positions:
            raise FlagError(
                f"learned positions end at {self.max_positions}: increase --max-source-positions and "
                "--max-target-positions, or use shorter sentences."
            )
        else:
            vectors = F.embedding(rows, self.weight, padding_idx)
        return scale_around(vectors, self.scalars["weight"], self.bias_gain)


def read_vectors(path: str, positions: int, width: int) -> Tensor:
    """The first vectors of a file for --input-positions-from, (positions, width).

    Raises:
        FlagError: the message names the file and the fix.
    """
    try:
        is_numpy = path.endswith(".npy")
        read: Any = np.load(path, allow_pickle=False) if is_numpy else torch.load(path, "cpu", weights_only=True)
        vectors: Any = torch.from_numpy(read) if is_numpy else read
    except Exception as error:
        reason = type(error).__name__
        raise _no_vectors(
            path, f"it cannot be read ({reason}): name one that numpy.save (.npy) or torch.save (.pt) wrote"
        ) from None
    if not isinstance(vectors, Tensor):
        keys = f" with the keys {few(vectors)}" if isinstance(vectors, Mapping) else ""
        raise _no_vectors(path, f"it holds a {type(vectors).__name__}{keys}: save the matrix of position vectors alone")
    if vectors.dim() != 2 or vectors.size(1) != width:
        raise _no_vectors(
            path,
            f"its shape is {tuple(vectors.shape)}, and the model needs (positions, {width}): make another file, or "
            "change --encoder-embed-dim and --decoder-embed-dim",
        )
    if len(vectors) < positions:
        limits = f"--max-source-positions {len(vectors)} and --max-target-positions {len(vectors)}"
        raise _no_vectors(
            path, f"it has {len(vectors)} of {positions} positions: set {limits}, or name a file with more"
        )
    if not (vectors.is_floating_point() and vectors.float().isfinite().all()):
        raise _no_vectors(path, "not all of its values are finite floating-point numbers: make another file")
    return vectors[:positions]


def _no_vectors(path: str, fault: str) -> FlagError:
    return FlagError(f"--input-positions-from {path}: {fault}.")


def replace_input_positions(stack: Any, cfg: Any) -> None:
    """Replaces fairseq's input positions of an encoder or decoder by those of this file, with their initial values."""
    kind = PaperSinusoids if cfg.sinusoids == "paper" else SinusoidalPositions
    stock, start = stack.embed_positions, cfg.input_positions_from
    if isinstance(stock, LearnedPositionalEmbedding):
        width, padding_idx = stock.embedding_dim, stock.padding_idx
        with torch.no_grad():
            vectors: Any = stock.weight[padding_idx + 1 :]  # the rows before are no positions
            if start == "sinusoidal":
                sinusoids = SinusoidalPositionalEmbedding(width, padding_idx, stock.num_embeddings)
                vectors.copy_(kind(sinusoids).weights[padding_idx + 1 :])
            elif start is not None:
                vectors.copy_(read_vectors(start, len(vectors), width))
        stack.embed_positions = LearnedPositions(stock, cfg.bias_gain)
    elif isinstance(stock, SinusoidalPositionalEmbedding):
        stack.embed_positions = kind(stock)
