"""Products with tables of vectors by distance, which avoid the (T, S, d) tensor of vectors by query and key."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import FlagError
from ...kernels.flex import ScoreMod
from ...positions import Positions
from ..contract.base import PositionEncoding


def per_head(x: Tensor, tables: Tensor) -> Tensor:
    """Multiplies x (B, H, T, m) by the table of each head (H, m, n), or of all heads (1, m, n): (B, H, T, n).

    Unlike ``x @ tables``, it does not copy the tables for each sentence of the batch; it costs less Python than einsum.
    """
    batch, heads, length, _ = x.shape
    tables = tables.to(x.dtype).expand(heads, -1, -1)
    # Queries, and the gradient of attention's output, are (T, B, H d) in memory: this flattening does not copy them.
    products = torch.bmm(x.permute(1, 2, 0, 3).flatten(1, 2), tables)  # (H, T B, n)
    return products.view(heads, length, batch, tables.size(-1)).permute(2, 0, 1, 3)


def take_distances(by_distance: Tensor, index: Tensor, band: tuple[int, int] | None = None) -> Tensor:
    """Gathers logits by table row, (B, H, T, rows), at the rows ``index`` (T, S): (B, H, T, S).

    Args:
        band: keys left of ``band[0]`` have the first row, and those from ``band[1]`` on the last, for every query;
            they are filled, which is faster.
    """
    left, right = (0, index.size(1)) if band is None else band
    within = by_distance.gather(-1, index[:, left:right].expand(*by_distance.shape[:2], -1, -1))
    if right - left == index.size(1):
        return within
    ends = by_distance[..., :1], by_distance[..., -1:]
    widths = left, index.size(1) - right
    filled = [end.expand(*end.shape[:3], width) for end, width in zip(ends, widths, strict=True)]
    return torch.cat([filled[0], within, filled[1]], dim=-1)


def logits_of_queries(q: Tensor, table: Tensor, index: Tensor, band: tuple[int, int] | None = None) -> Tensor:
    """q_i a_{ij}, (B, H, T, S), where a_{ij} is row ``index[i, j]`` of the table (H or 1, rows, d).

    Args:
        band: see :func:`take_distances`.
    """
    if len(index) == 1:  # with one query, as in incremental decoding, gathering the vectors first is cheaper
        return per_head(q, table.index_select(1, index[0]).transpose(-2, -1))
    return take_distances(per_head(q, table.transpose(-2, -1)), index, band)


def logits_of_keys(k: Tensor, table: Tensor, index: Tensor) -> Tensor:
    """k_j a_{ij}, (B, H, T, S), where a_{ij} is row ``index[i, j]`` of the table (H or 1, rows, d)."""
    if len(index) == 1:
        batch, heads, keys, width = k.shape
        vectors = table.index_select(1, index[0]).to(k.dtype).expand(heads, -1, -1)
        # One product for each head and key, with the keys of all sentences: of cached keys this copies nothing.
        products = torch.bmm(vectors.reshape(heads * keys, 1, width), k.permute(1, 2, 3, 0).flatten(0, 1))
        return products.view(heads, keys, batch).permute(2, 0, 1)[:, :, None]
    return take_distances(per_head(k, table.transpose(-2, -1)), index.T).transpose(-2, -1)


def clipped_score_mod(by_row: Tensor, positions: Positions, left: int, right: int) -> ScoreMod:
    """A score_mod that adds by_row (B, H, T, left + right + 1) at the row of the clipped distance; row 0 is -left."""
    first, lowest = positions.first, -left  # the compiler takes numbers, but no expressions of them
    return lambda score, b, h, i, j: score + by_row[b, h, i, (j - i - first).clamp(lowest, right) - lowest]


def weighted_sum(weights: Tensor, table: Tensor, index: Tensor, band: tuple[int, int] | None = None) -> Tensor:
    """sum_j w_{ij} a_{ij}, (B, H, T, d), where a_{ij} is row ``index[i, j]`` of the table (H or 1, rows, d).

    Args:
        band: see :func:`take_distances`.
    """
    if len(index) == 1:
        return per_head(weights, table.index_select(1, index[0]))
    # Sum in float32: many keys may share a clipped distance, and half precision would lose their small weights.
    sum_dtype = torch.promote_types(weights.dtype, torch.float32)
    left, right = (0, index.size(1)) if band is None else band
    within = weights.permute(1, 2, 0, 3)  # (H, T, B, S): per_head then copies nothing
    by_row = within.new_zeros(*within.shape[:3], table.size(1), dtype=sum_dtype)
    if right - left < index.size(1):
        on_left, within, on_right = within.split([left, right - left, index.size(1) - right], dim=-1)
        by_row[..., 0] += on_left.sum(-1, dtype=sum_dtype)
        by_row[..., -1] += on_right.sum(-1, dtype=sum_dtype)
    by_row.scatter_add_(-1, index[:, None, left:right].expand_as(within), within.to(sum_dtype))
    return per_head(by_row.permute(2, 0, 1, 3).to(weights.dtype), table)


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
