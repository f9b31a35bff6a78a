"""Rotary position embedding of Su et al. (2021), "RoFormer", https://arxiv.org/abs/2104.09864."""

import torch
from torch import Tensor

from ..positions import Positions
from .base import Option, PositionEncoding, register_encoding


@register_encoding("rotary")
class Rotary(PositionEncoding):
    r"""Queries and keys turned by an angle that grows with their position, so that only the distance remains.

    .. math::
        A_{ij} &= (q_i R_i) (k_j R_j)^T / \sqrt{d} = q_i R_{i - j} k_j^T / \sqrt{d} \\
        (x_a, x_b) R_m &= (x_a \cos m \theta_t - x_b \sin m \theta_t, \; x_b \cos m \theta_t + x_a \sin m \theta_t),
        \quad \theta_t = \mathrm{base}^{-2t/d}

    Layout: pair t is the dimensions (2t, 2t + 1) where ``interleaved``, as in the paper and GPT-J, or (t, t + d/2)
    where ``half``, as in GPT-NeoX and LLaMA; they differ by a fixed order of a head's dimensions.

    No parameters. Any distance is known. Extra time: O(B H (T + S) d), memory the same.
    """

    options = {
        "rotary_layout": Option(
            str, "which dimensions form a pair: neighbours (interleaved) or the two halves", ("interleaved", "half")
        ),
        "rotary_base": Option(float, "base of the wavelengths, 10000 in the paper"),
    }

    def __init__(
        self, num_heads: int, head_dim: int, rotary_layout: str = "interleaved", rotary_base: float = 10000.0
    ) -> None:
        super().__init__(num_heads, head_dim)
        if head_dim % 2:
            raise ValueError(f"rotary turns pairs of dimensions: the width of a head must be even, not {head_dim}.")
        if not 0 < rotary_base < float("inf"):
            raise ValueError(f"--rotary-base must be more than 0 and finite, not {rotary_base}.")
        self.rotary_layout = rotary_layout
        self.rotary_base = rotary_base

    def transform(self, q: Tensor, k: Tensor, v: Tensor, positions: Positions) -> tuple[Tensor, Tensor, Tensor]:
        # Only distances count, so columns serve as positions, padded or not.
        cos, sin = positions.cached(
            ("rotary", self.head_dim, self.rotary_base), lambda: self._angles(positions.keys, q.device)
        )
        first = positions.keys - positions.queries
        return self._rotate(q, cos[first:], sin[first:]), self._rotate(k, cos, sin), v

    def _angles(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosine and sine for each position and pair, (length, d / 2); in double precision, since single loses the
        angle of far positions."""
        pair = torch.arange(self.head_dim // 2, device=device, dtype=torch.float64)
        theta = self.rotary_base ** (-2 * pair / self.head_dim)
        angles = torch.arange(length, device=device)[:, None] * theta
        return angles.cos(), angles.sin()

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        interleaved = self.rotary_layout == "interleaved"
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1) if interleaved else x.chunk(2, dim=-1)
        turned = a * cos - b * sin, b * cos + a * sin
        return torch.stack(turned, dim=-1).flatten(-2) if interleaved else torch.cat(turned, dim=-1)
