"""Products with tables of vectors by distance, which avoid the (T, S, d) tensor of vectors by query and key."""

from __future__ import annotations

import torch
from torch import Tensor

from ...attention.flex_kernel import ScoreMod
from ...attention.positions import Positions
from ...errors import FlagError
from ..base import PositionEncoding


def per_head(x: Tensor, tables: Tensor) -> Tensor:
    """Multiplies x (B, H, T, m) by the table of each head (H, m, n), or of all heads (1, m, n): (B, H, T, n).

    Unlike ``x @ tables``, it does not copy the tables for each sentence of the batch.
    """
    tables = tables.to(x.dtype)
    if tables.size(0) == 1:
        return x @ tables[0]
    return torch.einsum("bhtm,hmn->bhtn", x, tables)


def take_distances(by_distance: Tensor, index: Tensor) -> Tensor:
    """Gathers logits by table row, (B, H, T, rows), at the rows ``index`` (T, S): (B, H, T, S)."""
    return by_distance.gather(-1, index.expand(*by_distance.shape[:2], -1, -1))


def logits_of_queries(q: Tensor, table: Tensor, index: Tensor) -> Tensor:
    """q_i a_{ij}, (B, H, T, S), where a_{ij} is row ``index[i, j]`` of the table (H or 1, rows, d)."""
    if len(index) == 1:  # with one query, as in incremental decoding, gathering the vectors first is cheaper
        return per_head(q, table[:, index[0]].transpose(-2, -1))
    return take_distances(per_head(q, table.transpose(-2, -1)), index)


def logits_of_keys(k: Tensor, table: Tensor, index: Tensor) -> Tensor:
    """k_j a_{ij}, (B, H, T, S), where a_{ij} is row ``index[i, j]`` of the table (H or 1, rows, d)."""
    if len(index) == 1:
        return (k * table[:, index[0]].to(k.dtype)).sum(-1)[:, :, None]
    return take_distances(per_head(k, table.transpose(-2, -1)), index.T).transpose(-2, -1)


def clipped_score_mod(by_row: Tensor, positions: Positions, left: int, right: int) -> ScoreMod:
    """A score_mod that adds by_row (B, H, T, left + right + 1) at the row of the clipped distance; row 0 is -left."""
    first, lowest = positions.first, -left  # the compiler takes numbers, but no expressions of them
    return lambda score, b, h, i, j: score + by_row[b, h, i, (j - i - first).clamp(lowest, right) - lowest]


def weighted_sum(weights: Tensor, table: Tensor, index: Tensor) -> Tensor:
    """sum_j w_{ij} a_{ij}, (B, H, T, d), where a_{ij} is row ``index[i, j]`` of the table (H or 1, rows, d)."""
    if len(index) == 1:
        return per_head(weights, table[:, index[0]])
    # Sum in float32: many keys may share a clipped distance, and half precision would lose their small weights.
    sum_dtype = torch.promote_types(weights.dtype, torch.float32)
    by_row = weights.new_zeros(*weights.shape[:3], table.size(1), dtype=sum_dtype)
    by_row = by_row.scatter_add(-1, index.expand_as(weights), weights.to(sum_dtype))
    return per_head(by_row.to(weights.dtype), table)


def table_heads(num_heads: int, position_sharing: str) -> int:
    """The number of heads in a table: 1 if heads share it ("head", "all")."""
    return 1 if position_sharing in ("head", "all") else num_heads


def check_length(encoding: PositionEncoding, length: int, max_positions: int) -> None:
    """Refuses a sequence longer than the encoding's tables.

    Raises:
        FlagError: the sequence is too long.
    """
    if length > max_positions:
        raise FlagError(
            f"{encoding.name} was built for sequences of at most {max_positions} positions, not {length}: build it "
            "with a larger max_positions (of a model: --max-source-positions, --max-target-positions) or split the "
            "sequence."
        )
