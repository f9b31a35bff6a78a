"""Positions and distances of queries and keys.

Convention of the whole package: the distance of query i and key j is ``j - i``. Queries are aligned to the *end* of
the keys, so a full pass (T = S) and one step of incremental decoding (T = 1) share one code path.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from .caches import Cache


def relative_distances(queries: int, keys: int, device: torch.device | None = None, first: int | None = None) -> Tensor:
    """Distance ``j - i`` of every query and key, (queries, keys), int64.

    Args:
        first: index of the first query among the keys; by default the queries are aligned to the end of the keys.
    """
    first = keys - queries if first is None else first
    i = torch.arange(first, first + queries, device=device)
    j = torch.arange(keys, device=device)
    return j[None, :] - i[:, None]


def absolute_positions(padding_mask: Tensor) -> Tensor:
    """Position of each token in its sentence, from 0, not counting padding, (batch, keys), int64.

    fairseq pads sources on the left and targets on the right, so column indices would depend on the padding.

    Args:
        padding_mask: (batch, keys), True = padding. Padding gets position 0.
    """
    real = (~padding_mask).long()
    return (real.cumsum(dim=1) - 1).clamp(min=0) * real


def count_separators(tokens: Tensor, separator: int) -> Tensor:
    """Segment of each token, that is the number of separators before it, (batch, length), int64."""
    separators = tokens.eq(separator).long()
    return separators.cumsum(dim=1) - separators


def by_pair(index: Tensor) -> Tensor:
    """An index of pairs, (T, S) or (B, T, S), as (1, 1, T, S) or (B, 1, T, S)."""
    return index[None, None] if index.dim() == 2 else index[:, None]


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """Gathers from a table (H, rows): (H, T, S) for an index (T, S), (B, H, T, S) for an index (B, T, S)."""
    entries = table.index_select(1, index.flatten()).view(-1, *index.shape)
    return entries if index.dim() == 2 else entries.transpose(0, 1)


class Clipped(NamedTuple):
    """Indices into a table with a row for each clipped distance."""

    #: the rows that occur at these lengths; callers slice the table first, so that other rows cost nothing
    rows: slice
    #: into these rows, of the shape of ``distances``
    indices: Tensor
    #: the keys, from and to, outside of which the distances of every query are clipped; all keys in cross-attention
    band: tuple[int, int]
    #: key of row 0 for the first query; of each next query it is one further. None if rows are no single distances
    start: int | None = None


@dataclass(frozen=True, eq=False)
class Positions:
    """Positions of queries and keys in one forward pass of the encoder or decoder, shared by its layers.

    Indices are computed on first use and cached. Make a new object for every pass: cached values may depend on
    parameters.

    Args:
        queries: number of queries T, the last T of the keys.
        keys: number of keys S.
        padding_mask: (batch, keys), True = padding, hidden from all queries; None without padding.
        device: of the indices; by default that of the mask or the segments, otherwise that of q.
        segments: (batch, keys), int64, the segment of each token, for encodings with segment attention.
        first: index of the first query among the keys; by default the queries are aligned to the end of the keys.
        given: (batch, keys), int64 or floating, the position of each token, see :meth:`moved`; None for 0, 1, 2, ...
        given_extent: how many positions a token can have in ``given``.
        cache: of the values that encodings compute once.
        whole: in a block of queries, the positions of all queries.
    """

    #: whether these are positions in cross-attention: keys of the source, queries of the target
    is_cross_attention = False

    queries: int
    keys: int
    padding_mask: Tensor | None = None
    device: torch.device | None = None
    segments: Tensor | None = None
    first: int = -1
    given: Tensor | None = None
    given_extent: int = 0
    cache: Cache = field(default_factory=Cache)
    whole: Positions | None = None

    def __post_init__(self) -> None:
        if self.queries > self.keys and not self.is_cross_attention:
            raise ValueError(f"{self.queries} queries cannot be the last of only {self.keys} keys.")
        known = self.padding_mask if self.padding_mask is not None else self.segments
        derived = {
            "first": self.first if self.first >= 0 else self.keys - self.queries,
            "padding_mask": None if self.padding_mask is None else self.padding_mask.bool(),
            "device": self.device if known is None else known.device,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def block(self, start: int, stop: int, keys: int) -> Positions:
        """Positions of queries ``start`` to ``stop - 1`` and the first ``keys`` keys.

        The keys must include the last of these queries. The backward pass recomputes a block, so values that need a
        gradient are not cached for it.
        """
        padding, segments, given = (
            None if by_key is None else by_key[:, :keys] for by_key in (self.padding_mask, self.segments, self.given)
        )
        return replace(
            self,
            queries=stop - start,
            keys=keys,
            padding_mask=padding,
            segments=segments,
            first=self.first + start,
            given=given,
            cache=Cache(recomputed=True),
            whole=self,
        )

    def moved(self, given: Tensor, extent: int) -> Positions:
        """The same pass with a given position for each token: higher by a shift, with gaps, or a real number.

        Distances, and all that follows from them, remain those of columns.

        Args:
            given: (batch, keys), int64 or floating.
            extent: how many positions a token can have; whole positions are less than this.
        """
        cache = Cache(self.cache.recomputed, self.cache.generation)
        return replace(self, given=given, given_extent=extent, cache=cache)

    def with_cache(self, cache: Cache) -> Positions:
        """The same positions with another cache."""
        copied = copy.copy(self)
        object.__setattr__(copied, "cache", cache)
        return copied

    @property
    def batch(self) -> int:
        """The number of sentences; 1 if neither the padding mask nor the segments tell it."""
        known = self.padding_mask if self.padding_mask is not None else self.segments
        return 1 if known is None else known.size(0)

    @cached_property
    def is_right_padded(self) -> bool:
        """Whether no padding is left of a real token, so that the position of a token is its column index."""
        mask = self.padding_mask
        return self.given is None and (mask is None or bool((mask[:, 1:] >= mask[:, :-1]).all()))

    @cached_property
    def has_padding(self) -> bool:
        """Whether any key is padding."""
        return self.padding_mask is not None and bool(self.padding_mask.any())

    @cached_property
    def lengths(self) -> Tensor:
        """The number of tokens of each sentence without padding, (batch, 1), or (1, 1) without a mask; int64."""
        if self.whole is not None:
            return self.whole.lengths
        if self.padding_mask is None:
            return torch.tensor([[self.keys]], device=self.device)
        return (~self.padding_mask).sum(dim=1, keepdim=True)

    @property
    def end(self) -> Tensor:
        """The position after the last token of each sentence, (batch, 1), if all positions are shifted alike."""
        return self.lengths + self.extent[1] - self.keys

    @cached_property
    def tokens_before(self) -> Tensor:
        """The number of tokens before each key, without padding, (batch, keys), or (1, keys) if right-padded; int64."""
        if self.padding_mask is None or self.is_right_padded:
            return torch.arange(self.keys, device=self.device)[None, :]
        return absolute_positions(self.padding_mask)

    @property
    def key_positions(self) -> Tensor:
        """Position of each key: the given one, or :attr:`tokens_before`, (batch or 1, keys)."""
        return self.tokens_before if self.given is None else self.given

    def at_queries(self, by_key: Tensor) -> Tensor:
        """The columns of the queries in (batch or 1, keys)."""
        return by_key[:, self.first : self.first + self.queries]

    @property
    def query_positions(self) -> Tensor:
        """Position of each query, from 0, not counting padding, (batch or 1, queries), int64."""
        return self.at_queries(self.key_positions)

    @property
    def extent(self) -> tuple[int, int]:
        """The number of positions that a query can have, and a key."""
        most = self.keys if self.given is None else self.given_extent
        return most, most

    @cached_property
    def distances(self) -> Tensor:
        """Distance ``j - i``, (queries, keys), or (batch, queries, keys) if sentences differ; int64."""
        return relative_distances(self.queries, self.keys, self.device, self.first)

    @cached_property
    def span(self) -> Tensor:
        """All distances that can occur, ascending, int64."""
        return torch.arange(*self._span_ends, device=self.device)

    @property
    def _span_ends(self) -> tuple[int, int]:
        """The smallest distance, and the largest plus 1."""
        return 1 - self.first - self.queries, self.keys - self.first

    @property
    def index_of_zero(self) -> int:
        """The index of distance 0 in ``span``."""
        return -self._span_ends[0]

    @cached_property
    def span_index(self) -> Tensor:
        """Index in ``span`` of the distance of each query and key, of the shape of ``distances``."""
        return self.distances - self._span_ends[0]

    def by_distance(self, values: Tensor) -> Tensor:
        """Expands values of each distance of ``span``, (H, distances), to (H, T, S) or (B, H, T, S)."""
        return look_up(values, self.span_index)

    def span_rows(self, left: int, right: int) -> Tensor | slice:
        """The row of each distance of ``span`` in a table with a row for each distance from -left to right."""
        lowest, end = self._span_ends
        if -left <= lowest and end - 1 <= right:  # nothing is clipped: a slice copies nothing
            return slice(lowest + left, end + left)
        return self.cache.get(("span rows", left, right), lambda: self.span.clamp(-left, right) + left)

    def clipped(self, left: int, right: int) -> Clipped:
        """Indices into a table with a row for each distance from -left to right; distances beyond are clipped."""

        def find() -> Clipped:
            lowest, end = self._span_ends
            low, high = max(-left, lowest), min(right, end - 1)
            rows, indices = slice(left + low, left + high + 1), self.distances.clamp(low, high) - low
            if self.is_cross_attention:
                return Clipped(rows, indices, (0, self.keys))
            start = min(max(self.first - left + 1, 0), self.keys)
            band = start, min(max(self.first + self.queries - 1 + right, start), self.keys)
            return Clipped(rows, indices, band, self.first + low)

        return self.cache.get(("clipped", left, right), find)

    def by_position(self, matrix: Tensor) -> Tensor:
        """Indexes a matrix (H, n, m) by the absolute positions of query and key: (H, T, S) or (B, H, T, S)."""
        if self.is_right_padded:
            return matrix[:, self.first : self.first + self.queries, : self.keys]
        width = matrix.size(2)
        index = self.cache.get(
            ("by position", width), lambda: self.query_positions[:, :, None] * width + self.key_positions[:, None, :]
        )
        return look_up(matrix.flatten(1), index)

    @cached_property
    def segment_pairs(self) -> tuple[Tensor, Tensor]:
        """Segments of the queries (batch, queries) and of the keys (batch, keys).

        Raises:
            ValueError: no segments were given.
        """
        if self.segments is None:
            raise ValueError(
                "segment attention needs the segment of each token: give positions=Positions(queries, keys, "
                "padding_mask, segments=...), or --segment-separator to a model."
            )
        return self.at_queries(self.segments), self.segments


@dataclass(frozen=True, eq=False, init=False)
class CrossPositions(Positions):
    """Positions in cross-attention; the distance is the position in the source minus the position in the target.

    Args:
        target: the decoder's own positions in this pass.
        padding_mask: (batch, source length), True = padding.
        segments: (batch, source length), int64.
        shift: added to the positions of the source.
    """

    is_cross_attention = True
    _target: Positions = field(init=False)

    def __init__(self, target: Positions, padding_mask: Tensor, segments: Tensor | None = None, shift: int = 0) -> None:
        if target.device is None:
            target = replace(target, device=padding_mask.device)
        object.__setattr__(self, "_target", target)
        super().__init__(
            target.queries,
            padding_mask.size(1),
            padding_mask,
            segments=segments,
            first=target.first,
            given=absolute_positions(padding_mask) + shift if shift else None,
            given_extent=padding_mask.size(1) + shift,
            cache=Cache(target.cache.recomputed, target.cache.generation),
        )

    @cached_property
    def is_right_padded(self) -> bool:
        return self._target.is_right_padded and super().is_right_padded

    @property
    def query_positions(self) -> Tensor:
        return self._target.query_positions

    @property
    def extent(self) -> tuple[int, int]:
        return self._target.extent[0], super().extent[1]

    @cached_property
    def distances(self) -> Tensor:
        distances = self.key_positions[:, None, :] - self.query_positions[:, :, None]
        return distances[0] if distances.size(0) == 1 else distances

    @property
    def _span_ends(self) -> tuple[int, int]:
        return 1 - self.extent[0], self.extent[1]

    @cached_property
    def segment_pairs(self) -> tuple[Tensor, Tensor]:
        if self.segments is None or self._target.segments is None:
            raise ValueError("segment attention in cross-attention needs the segments of both source and target.")
        return self._target.segment_pairs[0], self.segments
