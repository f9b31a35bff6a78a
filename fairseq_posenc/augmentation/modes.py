"""What each position augmentation does with the positions of a pass."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import FlagError
from ..positions import Positions

#: the output of fairseq's encoder, or a part of it
Encoded = dict[str, list[Tensor]]
#: the key of the encoder's output under which it hands the decoder what source and target share
SHARED_DRAW = "position_augmentation"
#: seed of the positions of ``random`` at evaluation
EVALUATION_SEED = 1
#: positions that ``random`` has ready for the target of a source of n tokens: 2 n + 10
TARGET_FACTOR, TARGET_EXTRA = 2, 10


class Augmentation:
    """What a stack does with the positions of a pass. This base class leaves them as they are."""

    #: added to the positions of the source in cross-attention
    source_shift = 0
    #: whether positions differ from 0, 1, 2, ... at evaluation too
    at_evaluation = False

    def source_positions(self, positions: Positions, training: bool) -> tuple[Positions, Encoded]:
        """The positions of the source, and what the encoder adds to its output for the target."""
        return self.target_positions(positions, training, None), {}

    def target_positions(self, positions: Positions, training: bool, encoded: Encoded | None) -> Positions:
        """The positions of the target, given the encoder's output; None without an encoder."""
        return positions


class FixedShift(Augmentation):
    """Adds k to all positions of the source after another augmentation, in training and at evaluation."""

    def __init__(self, k: int, after: Augmentation) -> None:
        self.source_shift = k
        self.after = after

    def source_positions(self, positions: Positions, training: bool) -> tuple[Positions, Encoded]:
        positions, more = self.after.source_positions(positions, training)
        return shifted_positions(positions, self.source_shift, self.source_shift), more

    def target_positions(self, positions: Positions, training: bool, encoded: Encoded | None) -> Positions:
        return self.after.target_positions(positions, training, encoded)


class Shift(Augmentation):
    """SHAPE: all positions of a sentence are k higher, k uniform in 0..K, in training only.

    Source and target have a k each. The authors' code leaves out k = K, and evaluates with k = K; here, as with every
    mode but ``random``, evaluation is without augmentation. As in their code, a sentence that would get beyond
    the end of a table is shifted less.

    Args:
        most: K.
        table: the number of positions that tables have; None without tables.
    """

    def __init__(self, most: int, table: int | None) -> None:
        self.most = most
        self.table = table

    def target_positions(self, positions: Positions, training: bool, encoded: Encoded | None) -> Positions:
        if not training:
            return positions
        most = self.most if self.table is None else max(0, min(self.most, self.table - positions.keys))
        k = torch.randint(most + 1, (positions.batch, 1), device=positions.device)
        return shifted_positions(positions, k, most)


def shifted_positions(positions: Positions, k: int | Tensor, most: int) -> Positions:
    """Positions that are k higher, k the same for all sentences or (batch, 1), and at most ``most``."""
    return positions.moved(positions.key_positions + k, positions.extent[1] + most)


class SegmentShift(Augmentation):
    """Segment-shifted positions of Lupo et al. (2023): p + N s in the segment s, in training and at evaluation.

    Args:
        shift: N.
        table: the number of positions that tables have; tokens beyond have the last. None without tables.
    """

    at_evaluation = True

    def __init__(self, shift: int, table: int | None = None) -> None:
        self.shift = shift
        self.table = table

    def target_positions(self, positions: Positions, training: bool, encoded: Encoded | None) -> Positions:
        assert positions.segments is not None, "--segment-shift needs --segment-separator"
        given = positions.key_positions + self.shift * positions.segments
        if positions.padding_mask is not None:
            given = given.masked_fill(positions.padding_mask, 0)
        if self.table is not None:
            given = given.clamp(max=self.table - 1)
        return positions.moved(given, int(given.max()) + 1)


class Random(Augmentation):
    """Randomized positions: those of n tokens are an ordered random subset of n of the positions 0 to L - 1.

    As in the paper, also at evaluation. There the draw is the same in every pass, which is this package's convention: a
    permutation of the range is drawn from a fixed seed, and n tokens get its first n values in ascending order. So
    a translation does not depend on the batch.

    In a decoder, which the paper does not have, a subset of the target's own length would tell each token how many will
    follow, and a generated target has no length yet. Therefore a target gets the first of 2 n + 10 positions in
    ascending order, n being the length of its source; these stay while it grows. Tokens after these, or after
    the first L of a sentence, get positions L, L + 1, ..., in tables no more than the last row.

    Args:
        range_: L.
        table: the number of positions that tables have; None without tables.
    """

    at_evaluation = True

    def __init__(self, range_: int, table: int | None) -> None:
        self.range = range_
        self.table = table
        generator = torch.Generator().manual_seed(EVALUATION_SEED)
        self._ranks = torch.randperm(range_, generator=generator)[None]

    def source_positions(self, positions: Positions, training: bool) -> tuple[Positions, Encoded]:
        return self._draw(positions, training, positions.lengths[:, 0].expand(positions.batch)), {}

    def target_positions(self, positions: Positions, training: bool, encoded: Encoded | None) -> Positions:
        if encoded is None:
            raise FlagError("--position-augmentation random needs the length of the source: use another mode.")
        lengths = (~encoded["encoder_padding_mask"][0]).sum(1)
        return self._draw(positions, training, TARGET_FACTOR * lengths + TARGET_EXTRA)

    def _draw(self, positions: Positions, training: bool, sizes: Tensor) -> Positions:
        if training:
            noise = torch.rand(positions.batch, self.range, device=positions.device)
            ranks = noise.argsort(1).argsort(1)
        else:
            ranks = self._ranks.to(sizes.device)
        subset = ordered_subset(ranks, sizes, positions.keys)
        if self.table is not None:
            subset = subset.clamp(max=self.table - 1)
        given = subset.gather(1, positions.key_positions.expand(positions.batch, -1))
        return positions.moved(given, self.table or self.range + positions.keys)


def ordered_subset(ranks: Tensor, sizes: Tensor, count: int) -> Tensor:
    """For each sentence the first ``count`` of the positions with the lowest ranks, in ascending order.

    Positions after these are L, L + 1, ...

    Args:
        ranks: the rank of each position from 0 to L - 1, (batch or 1, L).
        sizes: how many positions each sentence has, (batch,).
    """
    sizes = sizes.clamp(max=ranks.size(1))[:, None]
    number = torch.arange(count, device=ranks.device).expand(len(sizes), -1).contiguous()
    upto = (ranks < sizes).cumsum(1)  # how many of the subset are at or before each position
    return torch.searchsorted(upto, number + 1) + (number - sizes).clamp(min=0)


class Cape(Augmentation):
    """CAPE: a sentence's positions p become λ (p + Δ + ε_p), in training only.

    Δ is uniform in ±``global_shift``, each token's ε_p in ±``local_shift``, and log λ in ±log ``scale``. A source and
    its target have the same Δ and λ, so that both stay at about the same positions; the ε_p are independent.
    """

    def __init__(self, global_shift: float, local_shift: float, scale: float) -> None:
        self.global_shift = global_shift
        self.local_shift = local_shift
        self.scale = scale

    def source_positions(self, positions: Positions, training: bool) -> tuple[Positions, Encoded]:
        if not training:
            return positions, {}
        drawn = symmetric(positions, 2)
        return self._move(positions, drawn), {SHARED_DRAW: [drawn]}

    def target_positions(self, positions: Positions, training: bool, encoded: Encoded | None) -> Positions:
        if not training:
            return positions
        # An encoder in evaluation mode, as a frozen one is, has drawn nothing.
        return self._move(positions, encoded[SHARED_DRAW][0] if encoded and SHARED_DRAW in encoded else None)

    def _move(self, positions: Positions, drawn: Tensor | None) -> Positions:
        local = self.local_shift * symmetric(positions, positions.keys)
        if drawn is None:
            return positions.moved(positions.key_positions + local, positions.keys)
        shift, scale = self.global_shift * drawn[:, :1], (math.log(self.scale) * drawn[:, 1:]).exp()
        return positions.moved(cape(positions.key_positions, shift, local, scale), positions.keys)


def cape(positions: Tensor, shift: Tensor, local: Tensor, scale: Tensor) -> Tensor:
    """λ (p + Δ + ε_p) for positions (batch or 1, S), shift and scale (batch, 1), and local (batch, S)."""
    return scale * (positions + shift + local)


def symmetric(positions: Positions, count: int) -> Tensor:
    """Uniform random numbers from -1 to 1, (batch, count), double precision."""
    return 2 * torch.rand(positions.batch, count, dtype=torch.float64, device=positions.device) - 1
