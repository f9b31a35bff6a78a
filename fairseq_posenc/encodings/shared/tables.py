"""Products with tables of vectors by distance, which avoid the (T, S, d) tensor of vectors by query and key."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import FlagError
from ...kernels.flex import ScoreMod
from ...positions import Clipped, Positions, by_pair
from ...precision import at_least_single
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


#: fewer logits than this are summed by row with a scatter, which is a single operation
MANY_LOGITS = 1 << 18


def sum_by_row(x: Tensor, rows: int, start: int) -> Tensor:
    """Sums x (B, H, T, S) over the keys of each row of a table: (H, T, B, rows), in single precision at least.

    Row r of query t is key start + t + r; the first row also has all keys before it, the last one all keys after it.
    A scatter computes the same. On a CPU it is 2 to 3 times slower for long sentences, most of whose keys add to the
    same two numbers.
    """
    queries, keys = x.shape[-2:]
    last_start = start + queries - 1
    before, after = max(0, last_start), max(0, keys - start - rows)  # the most keys outside of the rows, of any query
    padding = max(0, before - start), max(0, last_start + rows + after - keys)
    padded = F.pad(x, padding)
    *outer, query_stride, key_stride = padded.stride()
    shape, first = (*x.shape[:-1], before + rows + after), start - before + padding[0]
    by_distance = padded.as_strided(shape, (*outer, query_stride + key_stride, key_stride), first * key_stride)
    on_left, within, on_right = by_distance.permute(1, 2, 0, 3).split([before, rows, after], dim=-1)
    sum_dtype = at_least_single(x.dtype)  # half precision would lose many small weights
    sums = within.to(sum_dtype, memory_format=torch.contiguous_format, copy=True)
    if before:
        sums[..., 0].add_(on_left.sum(-1, dtype=sum_dtype))
    if after:
        sums[..., -1].add_(on_right.sum(-1, dtype=sum_dtype))
    return sums


class _TakeByRow(torch.autograd.Function):
    """``by_row.gather(-1, index)``, whose gradient is :func:`sum_by_row`."""

    @staticmethod
    def forward(ctx: Any, by_row: Tensor, index: Tensor, start: int) -> Tensor:
        ctx.save_for_backward(index)
        ctx.start, ctx.rows, ctx.dtype = start, by_row.size(-1), by_row.dtype
        return by_row.gather(-1, index)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        [index] = ctx.saved_tensors
        return _SumByRow.apply(gradient, index, ctx.rows, ctx.start).permute(2, 0, 1, 3).to(ctx.dtype), None, None


class _SumByRow(torch.autograd.Function):
    """:func:`sum_by_row`, whose gradient is ``gather``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, rows: int, start: int) -> Tensor:
        ctx.save_for_backward(index)
        ctx.start, ctx.dtype = start, x.dtype
        return sum_by_row(x, rows, start)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        [index] = ctx.saved_tensors
        return _TakeByRow.apply(gradient.permute(2, 0, 1, 3).to(ctx.dtype), index, ctx.start), None, None, None


def _sums_by_row(x: Tensor, index: Tensor, rows: int, start: int | None) -> Tensor:
    """:func:`sum_by_row`, (B, H, T, rows), in memory as :func:`per_head` reads it; a start of None needs a scatter."""
    index = by_pair(index).expand_as(x)
    if start is not None and x.numel() >= MANY_LOGITS:
        sums: Tensor = _SumByRow.apply(x, index, rows, start)
    else:
        x = x.permute(1, 2, 0, 3)
        zeros = x.new_zeros(*x.shape[:3], rows, dtype=at_least_single(x.dtype))
        sums = zeros.scatter_add_(-1, index.permute(1, 2, 0, 3), x.to(zeros.dtype))
    return sums.permute(2, 0, 1, 3)


def take_distances(by_row: Tensor, clipped: Clipped) -> Tensor:
    """Gathers logits by table row, (B, H, T, rows), for each query and key: (B, H, T, S)."""
    index, (left, right), start = clipped.indices, clipped.band, clipped.start
    within = by_pair(index[..., left:right]).expand(*by_row.shape[:2], -1, -1)
    if start is None or within.numel() < MANY_LOGITS:
        taken = by_row.gather(-1, within)
    else:
        taken = _TakeByRow.apply(by_row, within, start - left)
    if right - left == index.size(-1):
        return taken
    # Keys on the left have the first row, those on the right the last one, for every query: filling is faster.
    ends, widths = (by_row[..., :1], by_row[..., -1:]), (left, index.size(1) - right)
    filled = [end.expand(*end.shape[:3], width) for end, width in zip(ends, widths, strict=True)]
    return torch.cat([filled[0], taken, filled[1]], dim=-1)


def shift_distances(by_distance: Tensor) -> Tensor:
    """A view (B, H, T, S) of logits by every distance that occurs, ascending, (B, H, T, T + S - 1).

    Key 0 of query i is number T - 1 - i of its row: each row begins one number earlier than the row before.
    """
    *outer, query_stride, distance_stride = by_distance.stride()
    batch, heads, queries, distances = by_distance.shape
    return by_distance.as_strided(
        (batch, heads, queries, distances + 1 - queries),
        (*outer, query_stride - distance_stride, distance_stride),
        by_distance.storage_offset() + (queries - 1) * distance_stride,
    )


def logits_of_queries(q: Tensor, table: Tensor, clipped: Clipped) -> Tensor:
    """q_i a_{ij}, (B, H, T, S), where a_{ij} is row ``clipped.indices[i, j]`` of the table (H or 1, rows, d)."""
    # With one query, as in incremental decoding, gathering the vectors first is cheaper.
    if clipped.start is not None and len(clipped.indices) == 1:
        return per_head(q, table.index_select(1, clipped.indices[0]).transpose(-2, -1))
    by_row = per_head(q, table.transpose(-2, -1))
    has_every_distance = clipped.start is not None and table.size(1) == sum(clipped.indices.shape) - 1
    return shift_distances(by_row) if has_every_distance else take_distances(by_row, clipped)


def logits_of_keys(k: Tensor, table: Tensor, index: Tensor) -> Tensor:
    """k_j a_{ij}, (B, H, T, S), where a_{ij} is row ``index[i, j]`` of the table (H or 1, rows, d)."""
    if len(index) == 1:
        batch, heads, keys, width = k.shape
        vectors = table.index_select(1, index[0]).to(k.dtype).expand(heads, -1, -1)
        # One product for each head and key, with the keys of all sentences: of cached keys this copies nothing.
        products = torch.bmm(vectors.reshape(heads * keys, 1, width), k.permute(1, 2, 3, 0).flatten(0, 1))
        return products.view(heads, keys, batch).permute(2, 0, 1)[:, :, None]
    by_row = per_head(k, table.transpose(-2, -1))
    return by_row.gather(-1, index.T.expand(*by_row.shape[:2], -1, -1)).transpose(-2, -1)


def clipped_score_mod(q: Tensor, table: Tensor, positions: Positions, left: int, right: int) -> ScoreMod:
    """A score_mod that adds q_i a_{ij}, a_{ij} being the row of the clipped distance in the table; row 0 is -left."""
    by_row = per_head(q, table.transpose(-2, -1))  # (B, H, T, left + right + 1)
    first, lowest = positions.first, -left  # the compiler takes numbers, but no expressions of them
    return lambda score, b, h, i, j: score + by_row[b, h, i, (j - i - first).clamp(lowest, right) - lowest]


def weighted_sum(weights: Tensor, table: Tensor, clipped: Clipped) -> Tensor:
    """sum_j w_{ij} a_{ij}, (B, H, T, d), a_{ij} being row ``clipped.indices[i, j]`` of the table (H or 1, rows, d)."""
    index, (left, right), start = clipped.indices, clipped.band, clipped.start
    if start is not None and len(index) == 1:
        return per_head(weights, table.index_select(1, index[0]))
    if start is None or right - left == index.size(1):
        by_row = _sums_by_row(weights, index, table.size(1), start)
    else:
        on_left, within, on_right = weights.split([left, right - left, index.size(1) - right], dim=-1)
        by_row = _sums_by_row(within, index[:, left:right], table.size(1), start - left)
        by_row[..., 0] += on_left.sum(-1, dtype=by_row.dtype)
        by_row[..., -1] += on_right.sum(-1, dtype=by_row.dtype)
    return per_head(by_row.to(weights.dtype), table)


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
