"""Relative positions of Transformer-XL and XLNet.

Dai et al. (2019), https://arxiv.org/abs/1901.02860; Yang et al. (2019), https://arxiv.org/abs/1906.08237.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import FlagError
from ..positions import Positions
from .contract.base import PositionEncoding
from .contract.options import option, parse_bool
from .contract.registry import register_encoding
from .shared.tables import per_head, shift_distances


@register_encoding("transformer_xl")
class TransformerXL(PositionEncoding):
    r"""Logits of queries with projected sinusoids of the distance, and a learned query bias in each of both terms.

    .. math:: A_{ij} = \frac{(q_i + u) k_j^T + (q_i + v) (R_{i - j} W_R)^T}{\sqrt{d}}

    R_t is (sin(t f_0), ..., cos(t f_0), ...), first all sines, then all cosines as in the authors' code, with
    f_m = 10000^(-2m / (H d)). The authors' model is causal; here t = i - j is negative for keys after the query, as in
    XLNet. All layers of a stack share u and v, as in the authors' code (its ``untie_r`` is off).

    Parameters: ``relative_projection`` W_R (H, d, H d): the position vector of head h is
    ``relative_projection[h] @ R_t``; ``content_bias`` u and ``position_bias`` v, each (H, d), unless ``query_biases``
    is false (Huang et al. (2020), 3.4, left them out as unstable). Distances are unlimited.
    Extra time O((T + S) (H d)^2 + B H T (T + S) d), memory O(B H T (T + S)).
    """

    query_biases: bool = option(True, parse_bool, "the learned vectors u and v, true or false")
    shared_by_layers: bool | tuple[str, ...] = ("content_bias", "position_bias")

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        width = num_heads * head_dim
        if width % 2:
            raise FlagError(f"{self.name} needs an even width, half sines and half cosines, not {width}.")
        self.relative_projection = nn.Parameter(torch.empty(num_heads, head_dim, width))
        self.content_bias = nn.Parameter(torch.empty(num_heads, head_dim)) if self.query_biases else None
        self.position_bias = nn.Parameter(torch.empty(num_heads, head_dim)) if self.query_biases else None
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)  # the authors'

    def learned_by_distance(self, positions: Positions) -> dict[str, Tensor]:
        return {"relative_projection": self._project(positions, self.relative_projection.dtype)}

    def prepare(self, positions: Positions, dtype: torch.dtype) -> tuple[Tensor, int]:
        """The vectors of all distances, and the index of distance 0."""
        return self._project(positions, dtype), positions.index_of_zero

    def transform(self, q: Tensor, k: Tensor, v: Tensor, positions: Positions) -> tuple[Tensor, Tensor, Tensor]:
        """Adds u to q, so that the content logits are (q_i + u) k_j."""
        return q if self.content_bias is None else q + self.content_bias.to(q.dtype)[:, None], k, v

    def bias(self, q: Tensor, k: Tensor, positions: Positions, prepared: tuple[Tensor, int] | None = None) -> Tensor:
        query = self._query_with(self.position_bias, q)
        return shift_distances(per_head(query, self._vectors(q, positions, prepared).transpose(-2, -1)))

    def _query_with(self, bias: Tensor | None, q: Tensor) -> Tensor:
        """The scaled query with this bias instead of u."""
        if bias is None:
            return q
        return q + (bias if self.content_bias is None else bias - self.content_bias).to(q.dtype)[:, None] * self.scaling

    def _vectors(self, q: Tensor, positions: Positions, prepared: tuple[Tensor, int] | None) -> Tensor:
        """R_t W_R for all distances of ``positions.span``, (H, distances, d), cached for the generation."""
        if prepared is not None:
            vectors, zero = prepared
            start = zero - positions.index_of_zero
            return vectors[:, start : start + len(positions.span)]
        if positions.cache.generation is None or positions.queries > 1:
            return self._project(positions, q.dtype)

        def make(keys: int) -> Tensor:
            return self._project(Positions(1, keys, device=q.device), q.dtype)

        cached = positions.cache.get_for_generation(self, positions.keys, make)
        return cached[:, cached.size(1) - positions.keys :]

    def _project(self, positions: Positions, dtype: torch.dtype) -> Tensor:
        sinusoids = relative_sinusoids(positions, self.num_heads * self.head_dim, dtype)
        return sinusoids @ self.relative_projection.to(dtype).transpose(-2, -1)


def relative_sinusoids(positions: Positions, width: int, dtype: torch.dtype) -> Tensor:
    """R_t for all distances of ``positions.span``, (distances, width), computed in double precision."""

    def make() -> Tensor:
        frequencies = 10000 ** (torch.arange(0, width, 2, device=positions.device, dtype=torch.float64) / -width)
        angles = -positions.span[:, None] * frequencies  # t = i - j, the negative distance
        return torch.cat([angles.sin(), angles.cos()], dim=1).to(dtype)

    return positions.cache.get(("relative sinusoids", width, dtype), make)


@register_encoding("xlnet")
class XLNet(TransformerXL):
    r"""Like ``transformer_xl``, but each layer has its own u and v; optionally with XLNet's segment encoding.

    .. math:: A_{ij} = \frac{(q_i + u) k_j^T + (q_i + v) (R_{i - j} W_R)^T + (q_i + s) g_{S(i) \ne S(j)}^T}{\sqrt{d}}

    Parameters: those of ``transformer_xl``; with ``segment_vectors`` also ``segment_query_bias`` s (H, d) and
    ``segment_vectors`` g (2, H, d), for keys in the same and in another segment. They replace DIET's segment
    attention.
    """

    has_segments: bool = option(
        False, parse_bool, "use XLNet's segment encoding instead of DIET's, true or false", name="segment_vectors"
    )
    shared_by_layers = False

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        self.needs_segments = self.has_segments
        self.segment_query_bias = nn.Parameter(torch.empty(num_heads, head_dim)) if self.has_segments else None
        self.segment_vectors = nn.Parameter(torch.empty(2, num_heads, head_dim)) if self.has_segments else None
        for parameter in (self.segment_query_bias, self.segment_vectors):
            if parameter is not None:
                nn.init.normal_(parameter, std=0.02)

    def bias(self, q: Tensor, k: Tensor, positions: Positions, prepared: tuple[Tensor, int] | None = None) -> Tensor:
        bias = super().bias(q, k, positions, prepared)
        if self.segment_vectors is None or self.segment_query_bias is None:
            return bias
        query = self._query_with(self.segment_query_bias, q)
        same_or_other = per_head(query, self.segment_vectors.permute(1, 2, 0))  # (B, H, T, 2)
        query_segments, key_segments = positions.segment_pairs
        other = (query_segments[:, None, :, None] != key_segments[:, None, None, :]).long()  # (B, 1, T, S)
        return bias + same_or_other.gather(-1, other.expand(-1, self.num_heads, -1, -1))
