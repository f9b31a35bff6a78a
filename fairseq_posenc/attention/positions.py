"""Where queries and keys stand, without any parameter, and what is cached for a pass or for a generation.

Convention of the whole package: the distance of query i and key j is ``j - i``. Queries are aligned to the *end* of
the keys, so that a full pass (T = S) and one step of cached decoding (T = 1) share one code path.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


def relative_distances(queries: int, keys: int, device: torch.device | None = None, first: int | None = None) -> Tensor:
    """Distance ``j - i`` of every query and key, (queries, keys), int64; ``first`` is the first query's place among the
    keys, by default so that the queries are the last.
    """
    first = keys - queries if first is None else first
    i = torch.arange(first, first + queries, device=device)
    j = torch.arange(keys, device=device)
    return j[None, :] - i[:, None]


def absolute_positions(padding_mask: Tensor) -> Tensor:
    """Rank of each token among the real tokens of its sentence, from 0, (batch, keys), int64.

    Sources are left-padded and targets right-padded in fairseq, so counting columns would move a sentence with its
    padding. ``padding_mask`` is (batch, keys), True = padding; padding itself gets position 0.
    """
    real = (~padding_mask).long()
    return (real.cumsum(dim=1) - 1).clamp(min=0) * real


def count_separators(tokens: Tensor, separator: int) -> Tensor:
    """The segment of each token: the number of separators before it, (batch, length), int64."""
    found = tokens.eq(separator).long()
    return found.cumsum(dim=1) - found


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """Entries of a table (H, rows) for each query and key: (H, T, S) by an index (T, S), (B, H, T, S) by (B, T, S)."""
    found = table.index_select(1, index.flatten()).view(-1, *index.shape)
    return found if index.dim() == 2 else found.transpose(0, 1)


class Positions:
    """What one stack knows of positions in one forward pass; made once, read by all of its layers.

    Indices are computed when first asked for and cached, so encodings that do not need them pay nothing. Make a new
    object for every pass: what it caches may depend on parameters.

    Args:
        queries: number of queries T, the last T of the keys.
        keys: number of keys S.
        padding_mask: (batch, keys), True = padding; None where nothing is padded.
        device: of the indices; by default that of the mask or the segments, or of q where neither is given.
        segments: (batch, keys), int64, the segment of each token, for encodings with segment attention.
        recomputed: whether layers run again in the backward pass (activation checkpointing); nothing that needs a
            gradient is cached then.
        generation: the cache of the generation of one batch, the same dictionary in all of its steps; None outside
            cached decoding.
        first: where the first query stands among the keys; by default so that the queries are the last.
    """

    #: whether the keys are of the source and the queries of the target
    is_cross_attention = False

    def __init__(
        self,
        queries: int,
        keys: int,
        padding_mask: Tensor | None = None,
        device: torch.device | None = None,
        segments: Tensor | None = None,
        recomputed: bool = False,
        generation: dict[Any, Any] | None = None,
        first: int | None = None,
    ) -> None:
        if queries > keys and not self.is_cross_attention:
            raise ValueError(f"{queries} queries cannot be the last of only {keys} keys.")
        self.queries = queries
        self.keys = keys
        self.first = keys - queries if first is None else first
        self.padding_mask = None if padding_mask is None else padding_mask.bool()
        given = padding_mask if padding_mask is not None else segments
        self.device = device if given is None else given.device
        self.segments = segments
        self.recomputed = recomputed
        self.generation = generation
        #: of the same pass in cross-attention, if an encoding is used there
        self.cross_attention: CrossPositions | None = None
        self._cache: dict[Hashable, Any] = {}

    def block(self, start: int, stop: int, keys: int) -> Positions:
        """Those of the queries from ``start`` to ``stop`` and the first ``keys`` keys, which reach at least to the last
        query. A block is recomputed in the backward pass, so nothing that needs a gradient is cached for it.
        """
        return Positions(
            stop - start,
            keys,
            None if self.padding_mask is None else self.padding_mask[:, :keys],
            self.device,
            None if self.segments is None else self.segments[:, :keys],
            recomputed=True,
            first=self.first + start,
        )

    @cached_property
    def is_right_padded(self) -> bool:
        """Whether there is padding on the right at most, so that the position of a real token is its column."""
        mask = self.padding_mask
        return mask is None or bool((mask[:, 1:] >= mask[:, :-1]).all())

    @cached_property
    def key_positions(self) -> Tensor:
        """Position of each key among the real tokens, from 0, (batch, keys), or (1, keys) if padding is on the
        right; int64.
        """
        if self.padding_mask is None or self.is_right_padded:
            return torch.arange(self.keys, device=self.device)[None, :]
        return absolute_positions(self.padding_mask)

    @property
    def query_positions(self) -> Tensor:
        """Position of each query among the real tokens, from 0, (batch or 1, queries), int64."""
        return self.key_positions[:, self.first : self.first + self.queries]

    @property
    def extent(self) -> tuple[int, int]:
        """How many positions queries can have, and keys."""
        return self.keys, self.keys

    @cached_property
    def distances(self) -> Tensor:
        """Distance ``j - i``, (queries, keys), or (batch, queries, keys) where it differs by sentence; int64."""
        return relative_distances(self.queries, self.keys, self.device, self.first)

    @cached_property
    def span(self) -> Tensor:
        """Every distance that can occur, ascending, int64."""
        return torch.arange(*self._span_ends, device=self.device)

    @property
    def _span_ends(self) -> tuple[int, int]:
        return 1 - self.first - self.queries, self.keys - self.first

    @cached_property
    def span_index(self) -> Tensor:
        """Where in ``span`` the distance of each query and key stands, of the shape of ``distances``."""
        return self.distances - self._span_ends[0]

    def by_distance(self, values: Tensor) -> Tensor:
        """A value for each distance of ``span``, (H, distances), laid out by query and key: (H, T, S) or
        (B, H, T, S).
        """
        return look_up(values, self.span_index)

    def clipped(self, left: int, right: int) -> tuple[slice, Tensor]:
        """Where a table of left + right + 1 rows, row ``clip(j - i, -left, right) + left``, is read.

        Returns ``(rows, index)``: the slice of rows that can occur at these lengths, and indices into that slice, of
        the shape of ``distances``. A table larger than the sentence thus costs no more than the sentence.
        """

        def find() -> tuple[slice, Tensor]:
            lowest, end = self._span_ends
            low, high = max(-left, lowest), min(right, end - 1)
            return slice(left + low, left + high + 1), self.distances.clamp(low, high) - low

        return self.cached(("clipped", left, right), find)

    def by_position(self, matrix: Tensor) -> Tensor:
        """Entries of a matrix (H, n, m) by absolute positions of query and key: (H, T, S) or (B, H, T, S)."""
        if self.is_right_padded:
            return matrix[:, self.first : self.first + self.queries, : self.keys]
        width = matrix.size(2)
        index = self.cached(
            ("by position", width), lambda: self.query_positions[:, :, None] * width + self.key_positions[:, None, :]
        )
        return look_up(matrix.flatten(1), index)

    @cached_property
    def segment_pairs(self) -> tuple[Tensor, Tensor]:
        """Segments of the queries (batch, queries) and of the keys (batch, keys).

        Raises:
            ValueError: they were not given.
        """
        if self.segments is None:
            raise ValueError(
                "segment attention needs to know the segments: give positions=Positions(queries, keys, "
                "padding_mask, segments=...), or --segment-separator to a model."
            )
        return self.segments[:, self.first : self.first + self.queries], self.segments

    def cached(self, key: Hashable, make: Callable[[], Any], learned: bool = False) -> Any:
        """``make()``, cached for this pass under ``key``. If it depends on parameters (``learned``), it is made again
        for each layer where layers are recomputed.
        """
        if learned and self.recomputed:
            return make()
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def cached_for_generation(self, key: Hashable, make: Callable[[int], Tensor], longest: int | None = None) -> Tensor:
        """``make(n)`` for n positions, cached under ``key`` for the whole generation; n, at most ``longest``, doubles
        when it is outgrown. Outside a generation it is cached for this pass, and must not depend on parameters.
        """
        length = max(self.extent)
        if self.generation is None:
            return self.cached(key, lambda: make(length))
        capacity, value = self.generation.get(key, (0, None))
        if capacity < length:
            capacity = max(64, 2 * length) if longest is None else min(max(64, 2 * length), longest)
            value = make(capacity)
            self.generation[key] = capacity, value
        return value


class CrossPositions(Positions):
    """Positions in cross-attention, where a distance is the position in the source minus that in the target.

    Args:
        target: the decoder's own positions in this pass.
        padding_mask: (batch, source length), True = padding.
        segments: (batch, source length), int64.
    """

    is_cross_attention = True

    def __init__(self, target: Positions, padding_mask: Tensor, segments: Tensor | None = None) -> None:
        super().__init__(
            target.queries,
            padding_mask.size(1),
            padding_mask,
            segments=segments,
            recomputed=target.recomputed,
            generation=target.generation,
            first=target.first,
        )
        if target.device is None:
            target.device = self.device
        # What is needed of the target, not the target itself: it holds this object, and neither would be freed.
        self._query_positions = target.query_positions
        self._query_extent = target.keys
        self._query_segments = None if target.segments is None else target.segment_pairs[0]
        self._target_is_right_padded = target.is_right_padded

    @cached_property
    def is_right_padded(self) -> bool:
        return self._target_is_right_padded and super().is_right_padded

    @property
    def query_positions(self) -> Tensor:
        return self._query_positions

    @property
    def extent(self) -> tuple[int, int]:
        return self._query_extent, self.keys

    @cached_property
    def distances(self) -> Tensor:
        distances = self.key_positions[:, None, :] - self.query_positions[:, :, None]
        return distances[0] if distances.size(0) == 1 else distances

    @property
    def _span_ends(self) -> tuple[int, int]:
        return 1 - self._query_extent, self.keys

    @cached_property
    def segment_pairs(self) -> tuple[Tensor, Tensor]:
        if self.segments is None or self._query_segments is None:
            raise ValueError("segment attention between source and target needs the segments of both.")
        return self._query_segments, self.segments
