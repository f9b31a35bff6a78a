"""The four relative position embeddings of Huang et al. (2020), https://arxiv.org/abs/2009.13658.

The paper has an embedding for each distance up to the maximum length n, and clips in one ablation only. Here methods 2
to 4 clip as Shaw's does (clipping_distance = n - 1 gives the paper's tables), and method 1 has ``max_positions``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..positions import Positions, look_up
from ..precision import at_least_single
from .contract.base import PositionEncoding
from .contract.options import MAX_POSITIONS, POSITION_SHARING, option
from .contract.registry import register_encoding
from .shared.clipped import ClippedEncoding
from .shared.tables import check_length, logits_of_keys, logits_of_queries


@register_encoding("huang1")
class Huang1(PositionEncoding):
    r"""A learned factor for each head and absolute distance.

    .. math:: e_{ij} = q_i k_j^T w_{|j - i|} / \sqrt{d}  \quad (11, 12)

    Parameter: ``relative_factors`` (H, max_positions), or (1, max_positions) if heads share it; entry t is
    |j - i| = t. Longer sequences are refused. Extra time and memory: O(B H T S).
    """

    position_sharing: str = option("none", POSITION_SHARING)
    max_positions: int = option(1024, MAX_POSITIONS)
    scalars = {"relative_factors": 1.0}

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        # The paper names no initializer for methods 1 to 3; factors of 1 start as attention without positions.
        self.relative_factors = nn.Parameter(torch.ones(self.table_heads, self.max_positions))

    def learned_by_distance(self, positions: Positions) -> dict[str, Tensor]:
        return {"relative_factors": self.effective("relative_factors")[:, positions.span.abs()]}

    def content(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        check_length(self, positions.keys, self.max_positions)
        factors = self.learned_by_distance(positions)["relative_factors"].to(q.dtype)
        return q @ k.transpose(-2, -1) * positions.by_distance(factors)


@register_encoding("huang2")
class Huang2(ClippedEncoding):
    r"""A learned factor for each head and signed distance.

    .. math:: e_{ij} = q_i k_j^T w_{j - i} / \sqrt{d}  \quad (13, 12)

    Parameter: ``relative_factors`` (H, 2K + 1), or (1, 2K + 1) if heads share it; row t is distance t - K.
    Extra time and memory: O(B H T S).
    """

    scalars = {"relative_factors": 1.0}

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        self.relative_factors = nn.Parameter(torch.ones(self.table_shape()))

    def content(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        rows, index, *_ = self.clipped(positions)
        return q @ k.transpose(-2, -1) * look_up(self.effective("relative_factors")[:, rows].to(q.dtype), index)


#: if at most this share of the distances is not clipped, the clipped ones are two matrix products; otherwise each
#: distance gets its own diagonal
MOST_UNCLIPPED = 2 / 3
#: up to so many products of query, key and vector, all are computed at once, which is faster where they fit in a
#: CPU's cache: it takes fewer operations
MOST_AT_ONCE = 1 << 20


@register_encoding("huang3")
class Huang3(ClippedEncoding):
    r"""A learned vector for each head and signed distance, multiplied elementwise with query and key.

    .. math:: e_{ij} = \sum_c q_{ic} k_{jc} a_{j - i, c} / \sqrt{d}  \quad (14, 15)

    The authors' implementation makes a (T, S, d) tensor for each head and fits 2 sequences on a GPU instead of 20. Here
    only short sentences do. In others, one diagonal of the logits is computed after the other, since it has one vector
    a, and the backward pass computes the products again. All clipped distances of one side share a vector, so their
    logits are one matrix product. No tensor of products is then larger than q.

    Parameter: ``relative_vectors`` (H, 2K + 1, d), or (1, 2K + 1, d) if heads share it; row t is distance t - K.
    Time O(B H T S d), for K distances on each side with no matrix product to speed it up; extra memory O(B H T S).
    """

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        self.relative_vectors = nn.Parameter(torch.ones(self.table_shape(self.head_dim)))

    def content(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        rows, index, *_ = self.clipped(positions)
        vectors, lowest = self.relative_vectors[:, rows], rows.start - self.clipping_distance
        if positions.queries == 1 or q.numel() * positions.keys <= MOST_AT_ONCE:
            pair_vectors = vectors.to(q.dtype).index_select(1, index.flatten()).unflatten(1, index.shape)
            return (k[:, :, None] * pair_vectors @ q[..., None])[..., 0]  # of (B, H, T, S, d)
        if vectors.size(1) > MOST_UNCLIPPED * len(positions.span):
            vectors, lowest = self.learned_by_distance(positions)["relative_vectors"], -positions.index_of_zero
        logits: Tensor = ProductsByDiagonal.apply(q, k, vectors.to(q.dtype), positions.first + lowest)
        return logits


class ProductsByDiagonal(torch.autograd.Function):
    """sum_c q_ic k_jc a_{j - i, c}, (B, H, T, S), of vectors a by ascending distance; those at the ends serve all
    distances beyond.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, vectors: Tensor, lowest: int) -> Tensor:
        """The logits.

        Args:
            vectors: (H or 1, distances, d).
            lowest: the offset of the first vector's diagonal, as in :func:`torch.diagonal`.
        """
        ctx.save_for_backward(q, k, vectors)
        ctx.lowest = lowest
        if _covers_all(vectors, q, k):
            logits = q.new_empty(*q.shape[:3], k.size(2))
        else:
            # Autocast computes products in half precision; backward needs logits of q's type.
            lower, higher = (((q * vectors[:, end, None]) @ k.transpose(-2, -1)).to(q.dtype) for end in (0, -1))
            logits = lower.tril_(lowest - 1).add_(higher.triu_(lowest + vectors.size(1)))
        for number, offset, i, j in _diagonals(q, k, vectors, lowest):
            products = q[:, :, i] * k[:, :, j] @ vectors[:, number, :, None]
            logits.diagonal(offset, 2, 3).copy_(products[..., 0])
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logits: Tensor) -> tuple[Tensor | None, ...]:
        q, k, vectors = ctx.saved_tensors
        # Sum in float32: the gradients of q and k are sums over as many diagonals as there are distances.
        grad_q, grad_k = (torch.zeros_like(x, dtype=at_least_single(x.dtype)) for x in (q, k))
        grad_vectors = torch.empty_like(vectors)
        for number, offset, i, j in _diagonals(q, k, vectors, ctx.lowest):
            grad_products = grad_logits.diagonal(offset, 2, 3)[..., None]
            by_head = (q[:, :, i] * k[:, :, j]).transpose(-2, -1) @ grad_products  # (B, H, d, 1)
            grad_vectors[:, number] = by_head[..., 0].sum(0).sum_to_size(grad_vectors[:, number].shape)
            scaled = grad_products * vectors[:, number, None]
            grad_q[:, :, i].addcmul_(scaled, k[:, :, j])
            grad_k[:, :, j].addcmul_(scaled, q[:, :, i])
        if not _covers_all(vectors, q, k):
            higher = ctx.lowest + vectors.size(1)
            for end, part, diagonal in ((0, torch.tril, ctx.lowest - 1), (-1, torch.triu, higher)):
                beyond = part(grad_logits, diagonal)
                grad_scaled = beyond @ k
                grad_q.addcmul_(grad_scaled, vectors[:, end, None])
                grad_k += beyond.transpose(-2, -1) @ (q * vectors[:, end, None])
                grad_vectors[:, end] += (q * grad_scaled).sum((0, 2)).sum_to_size(grad_vectors[:, end].shape)
        return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_vectors, None


def _covers_all(vectors: Tensor, q: Tensor, k: Tensor) -> bool:
    """Whether each distance has a vector of its own."""
    return vectors.size(1) == q.size(2) + k.size(2) - 1


def _diagonals(q: Tensor, k: Tensor, vectors: Tensor, lowest: int) -> Iterator[tuple[int, int, slice, slice]]:
    """For each vector: its number, the offset of its diagonal, and the queries and keys on it."""
    for number in range(vectors.size(1)):
        offset = lowest + number
        i, j = max(0, -offset), max(0, offset)
        length = min(q.size(2) - i, k.size(2) - j)
        yield number, offset, slice(i, i + length), slice(j, j + length)


@register_encoding("huang4")
class Huang4(ClippedEncoding):
    r"""A learned vector for each head and signed distance, in dot products with the query and with the key.

    .. math:: e_{ij} = (q_i k_j^T + q_i a_{j - i}^T + k_j a_{j - i}^T) / \sqrt{d}  \quad (16)

    Parameter: ``relative_vectors`` (H, 2K + 1, d), or (1, 2K + 1, d) if heads share it, as in the first author's
    code (BERT's "relative_key_query", which stores i - j); row t is distance t - K.
    Extra time O(B H (T + S) K d) and memory O(B H (T + S) K), K at most the length.
    """

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        self.relative_vectors = nn.Parameter(torch.empty(self.table_shape(self.head_dim)))
        nn.init.normal_(self.relative_vectors, std=0.02)  # as BERT

    def bias(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        clipped = self.clipped(positions)
        vectors = self.relative_vectors[:, clipped.rows]
        return logits_of_queries(q, vectors, clipped) + logits_of_keys(k, vectors * self.scaling, clipped.indices)
