"""Vectors of absolute positions, added to what attention projects to queries and keys, but not to values.

Carion et al. (2020), "DETR", https://arxiv.org/abs/2005.12872, add them in every layer. Miyazaki, Mino and Kaneko
(2024), https://aclanthology.org/2024.lrec-main.1478, find that vectors of positions belong there, and not on values.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..positions import Positions
from .contract.base import Facts, PositionEncoding, Projection, Projections
from .contract.options import MAX_POSITIONS, option
from .contract.registry import register_encoding
from .shared.tables import check_length


class QueryKeyVectors(PositionEncoding):
    """Base class of encodings that add a vector to the input of the projections to queries and keys.

    A subclass implements :meth:`vectors`.
    """

    facts = Facts(reads="reals", supports_cross_attention=True)

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        #: attention's projections to queries and keys, and the precision of their input, set by ``read_layer``; without
        #: projections the vectors are added as they are
        self.content_projections: Projections | None = None
        self._precision = torch.get_default_dtype()

    def vectors(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """The vectors p of these positions (...), (..., H d)."""
        raise NotImplementedError

    @property
    def vectors_key(self) -> Hashable:
        """Equal for the layers that have the same vectors, which then make them once."""
        raise NotImplementedError

    def read_layer(self, x: Tensor, projections: Projections | None) -> None:
        if projections is not None:
            self.content_projections, self._precision = projections, x.dtype

    def transform(self, q: Tensor, k: Tensor, v: Tensor, positions: Positions) -> tuple[Tensor, Tensor, Tensor]:
        query, key = self.content_projections or (_unprojected, _unprojected)
        query_extent, key_extent = positions.extent
        first_key = positions.keys - k.size(2)
        q = q + self._projected(query, positions, query_extent, positions.query_positions, positions.first, q)
        if k.size(2):
            new_keys = positions.key_positions[:, first_key:]
            k = k + self._projected(key, positions, key_extent, new_keys, first_key, k)
        return q, k, v

    def _projected(
        self, projection: Projection, positions: Positions, extent: int, places: Tensor, first: int, x: Tensor
    ) -> Tensor:
        """W p, to add to x (B, H, n, d), without the bias of the projection, (B or 1, H, n, d).

        Args:
            places: the positions of x, (B or 1, n).
            first: the number of the first of them, if they are not given and nothing is padded on the left.
        """
        precision = x.dtype if self.content_projections is None else self._precision

        def vectors(numbers: Tensor) -> Tensor:
            return F.pad(self.vectors(numbers, precision), (0, 0, 0, 1))  # a projected zero is the bias

        def project(p: Tensor) -> Tensor:
            projected = projection(p)
            return (projected[..., :-1, :] - projected[..., -1:, :]).to(x.dtype)

        def table(capacity: int) -> Tensor:
            key = self.vectors_key, capacity, precision
            p = positions.cache.get(key, lambda: vectors(torch.arange(capacity, device=x.device)), learned=True)
            return project(p)

        if places.is_floating_point():
            projected = project(vectors(places))
        else:
            if positions.cache.generation is None:
                by_position = table(extent)
            else:  # each position is projected once
                longest = getattr(self, "max_positions", None)
                by_position = positions.cache.get_for_generation((self, projection), extent, table, longest)
            # A slice is cheaper than an index, whose gradient adds up row by row.
            is_slice = positions.is_right_padded
            projected = by_position[None, first : first + x.size(2)] if is_slice else by_position[places]
        return projected.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)


def _unprojected(x: Tensor) -> Tensor:
    return x


@register_encoding("sinusoidal_qk")
class SinusoidalQueryKey(QueryKeyVectors):
    r"""Sinusoids, added to what is projected to queries and keys in every layer.

    .. math::
        A_{ij} &= (x_i + p_i) W_Q ((x_j + p_j) W_K)^T / \sqrt{d}, \quad z_i = \sum_j \alpha_{ij} \, x_j W_V \\
        p_t &= (\sin t f_0, \ldots, \sin t f_{n-1}, \cos t f_0, \ldots, \cos t f_{n-1}), \quad
        f_m = 10000^{-m / (n - 1)}, \quad n = H d / 2

    p is fairseq's sinusoid; positions count real tokens from 0. Between source and target, i is a position in the
    target and j one in the source. In ``sinusoidal`` the same vectors are added once, to the embeddings, and so reach
    the values too.

    No parameters. Positions are unlimited. Extra time: O(n (H d)^2) for n positions in each layer, once for all
    sentences; memory O(B H (T + S) d).
    """

    @property
    def vectors_key(self) -> Hashable:
        return self.name, self.num_heads * self.head_dim

    def vectors(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        width = self.num_heads * self.head_dim
        half = width // 2
        frequencies = torch.logspace(0, -1, half, 10000, dtype=torch.float64, device=positions.device)
        angles = positions[..., None] * frequencies
        vectors = torch.cat([angles.sin(), angles.cos()], dim=-1).to(dtype)
        return F.pad(vectors, (0, 1)) if width % 2 else vectors  # as fairseq


@register_encoding("learned_qk")
class LearnedQueryKey(QueryKeyVectors):
    r"""Learned vectors, added to what is projected to queries and keys in every layer.

    .. math:: A_{ij} = (x_i + p_i) W_Q ((x_j + p_j) W_K)^T / \sqrt{d}, \quad z_i = \sum_j \alpha_{ij} \, x_j W_V

    Positions count real tokens from 0. Between source and target, i is a position in the target and j one in the
    source; both have their vectors in one table. Initially normal with standard deviation (H d)^(-1/2), as fairseq's
    learned input positions are.

    Parameter: ``position_vectors`` (max_positions, H d), shared by the layers of a stack. Longer sequences are refused.
    Extra time: O(n (H d)^2) for n positions in each layer, once for all sentences; memory O(B H (T + S) d).
    """

    facts = replace(QueryKeyVectors.facts, reads="integers")
    shared_by_layers = ("position_vectors",)
    max_positions: int = option(1024, MAX_POSITIONS)

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        width = num_heads * head_dim
        self.position_vectors = nn.Parameter(torch.empty(self.max_positions, width))
        nn.init.normal_(self.position_vectors, std=width**-0.5)

    def transform(self, q: Tensor, k: Tensor, v: Tensor, positions: Positions) -> tuple[Tensor, Tensor, Tensor]:
        check_length(self, max(positions.extent), self.max_positions)
        return super().transform(q, k, v, positions)

    @property
    def vectors_key(self) -> Hashable:
        return self.position_vectors

    def vectors(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        return self.position_vectors[positions].to(dtype)
