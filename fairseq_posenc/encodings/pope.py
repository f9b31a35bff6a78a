"""Polar coordinate position embeddings of Gopalakrishnan et al. (2025), "PoPE", https://arxiv.org/abs/2509.10534."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..positions import Positions
from ..precision import at_least_single
from .contract.base import Facts, PositionEncoding
from .contract.registry import register_encoding
from .shared.clamp import clamp_straight_through
from .shared.rotations import at_positions, rotations

#: base of the wavelengths, as in the paper
BASE = 10000.0


@register_encoding("pope")
class Pope(PositionEncoding):
    r"""Queries and keys as complex numbers: words set their magnitudes only, positions their phases only.

    .. math::
        A_{ij} = \frac{1}{\sqrt{d}} \sum_{c=0}^{d-1} \mathrm{softplus}(q_{ic}) \, \mathrm{softplus}(k_{jc})
        \cos((j - i) \theta_c + \delta_c), \quad \theta_c = 10000^{-c/d}, \quad -2\pi \le \delta_c \le 0

    In rotary, words change the phases too. Each of the d components has a frequency of its own, and a complex number
    takes two dimensions: queries and keys become twice as wide. In incremental decoding the cache holds magnitudes,
    of the head's width, and each query multiplies them by the cosines of its distances.

    Parameters: ``phases`` delta, (H, d), of each layer, initialized at 0, their upper bound; the
    straight-through gradient lets a phase above it return. Distances are unlimited. Extra time: O(B H (T + S) d), and
    q k^T of width 2d; memory O(B H (T + S) d).
    """

    facts = Facts(reads="differences")

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__(num_heads, head_dim)
        self.phases = nn.Parameter(torch.zeros(num_heads, head_dim))

    def transform(self, q: Tensor, k: Tensor, v: Tensor, positions: Positions) -> tuple[Tensor, Tensor, Tensor]:
        if positions.cache.generation is not None:
            return F.softplus(q), F.softplus(k), v  # without phases, which would double the width of the cache
        precise = at_least_single(q.dtype)
        rotated_q, rotated_k = self._with_phases(F.softplus(q.to(precise)), F.softplus(k.to(precise)), positions)
        return rotated_q.to(q.dtype), rotated_k.to(k.dtype), v

    def needs_logits(self, positions: Positions | None = None) -> bool:
        return positions is not None and positions.cache.generation is not None

    def content(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        if positions.cache.generation is not None:
            q, k = self._recalled(q, k, positions)
        return super().content(q, k, positions)

    def _recalled(self, q: Tensor, k: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        """Gives q and the cached magnitudes their phases."""
        # With one query, the phases amount to a real factor for each distance, so q and k keep width d.
        if positions.queries > 1 or positions.given is not None:
            return self._with_phases(q, k, positions)
        factors = positions.cache.get_for_generation(
            self, positions.keys, lambda keys: self._factors(Positions(1, keys, device=q.device)).to(q.dtype)
        )
        return q, k * factors[:, factors.size(1) - positions.keys :]

    def _with_phases(self, q: Tensor, k: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        """Gives the magnitudes q and k their phases: complex numbers as pairs of real numbers, of width 2d."""
        precise = at_least_single(q.dtype)  # of complex numbers, of which half precision has few operations
        query_rotations, key_rotations = at_positions(
            positions,
            k.size(2),
            ("pope", self.head_dim, precise),
            lambda places: rotations(places, self._frequencies(q.device), precise),
            q.device,
        )
        delta = self._delta.to(precise)[:, None]  # (H, 1, d)
        key_rotations = key_rotations * torch.complex(delta.cos(), delta.sin())
        rotated_q, rotated_k = (
            torch.view_as_real(x.to(precise) * by).flatten(-2).to(x.dtype)
            for x, by in ((q, query_rotations), (k, key_rotations))
        )
        return rotated_q, rotated_k

    @property
    def _delta(self) -> Tensor:
        return clamp_straight_through(self.phases, -2 * math.pi, 0.0)

    def _frequencies(self, device: torch.device) -> Tensor:
        """The angle of each component at position 1, (d,)."""
        last = 1 / self.head_dim - 1
        return torch.logspace(0, last, self.head_dim, BASE, dtype=torch.float64, device=device)

    def learned_by_distance(self, positions: Positions) -> dict[str, Tensor]:
        """The mean over components of what multiplies their magnitudes."""
        return {"phases": self._factors(positions).mean(-1)}

    def _factors(self, positions: Positions) -> Tensor:
        """What multiplies the magnitudes at each distance of ``positions.span``, (H, distances, d)."""
        angles = positions.span[:, None] * self._frequencies(positions.span.device)  # (distances, d)
        return (angles + self._delta[:, None]).cos()
