"""Index functions: where queries and keys stand, without any parameter.

Convention of the whole package: the distance of query i and key j is ``j - i``. Queries are aligned to the *end* of
the keys, so that a full pass (T = S) and one step of cached decoding (T = 1) share one code path.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor


def relative_distances(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """Distance ``j - i`` of every query and key, (queries, keys), int64."""
    i = torch.arange(keys - queries, keys, device=device)
    j = torch.arange(keys, device=device)
    return j[None, :] - i[:, None]


def absolute_positions(padding_mask: Tensor) -> Tensor:
    """Rank of each token among the real tokens of its sentence, from 0, (batch, keys), int64.

    Sources are left-padded and targets right-padded in fairseq, so counting columns would move a sentence with its
    padding. ``padding_mask`` is (batch, keys), True = padding; padding itself gets position 0.
    """
    real = (~padding_mask).long()
    return (real.cumsum(dim=1) - 1).clamp(min=0) * real


class Positions:
    """What one stack knows of positions in one forward pass; made once, read by all of its layers.

    Indices are computed when first asked for and kept, so that encodings that do not need them pay nothing.

    Args:
        queries: number of queries T, the last T of the keys.
        keys: number of keys S.
        padding_mask: (batch, keys), True = padding; None where nothing is padded.
        device: of the indices.
    """

    def __init__(
        self, queries: int, keys: int, padding_mask: Tensor | None = None, device: torch.device | None = None
    ) -> None:
        if queries > keys:
            raise ValueError(f"{queries} queries cannot be the last of only {keys} keys.")
        self.queries = queries
        self.keys = keys
        self.padding_mask = padding_mask
        self.device = device if padding_mask is None else padding_mask.device
        self._clipped: dict[int, tuple[slice, Tensor]] = {}

    @cached_property
    def distances(self) -> Tensor:
        """Distance ``j - i``, (queries, keys), int64."""
        return relative_distances(self.queries, self.keys, self.device)

    @cached_property
    def absolute(self) -> Tensor:
        """Position of each key among the real tokens, from 0, (batch or 1, keys), int64."""
        if self.padding_mask is None:
            return torch.arange(self.keys, device=self.device)[None, :]
        return absolute_positions(self.padding_mask)

    def clipped(self, k: int) -> tuple[slice, Tensor]:
        """Where a table of 2k + 1 rows, row ``clip(j - i, -k, k) + k``, is read.

        Returns ``(rows, index)``: the slice of rows that can occur at these lengths, and (queries, keys) indices into
        that slice. A table larger than the sentence thus costs no more than the sentence: at most
        min(2k, T + S - 2) + 1 rows.
        """
        if k not in self._clipped:
            low, high = max(-k, 1 - self.keys), min(k, self.queries - 1)
            self._clipped[k] = slice(k + low, k + high + 1), self.distances.clamp(low, high) - low
        return self._clipped[k]
