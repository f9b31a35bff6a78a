"""Rotary position embedding of Su et al. (2021), "RoFormer", https://arxiv.org/abs/2104.09864."""

from typing import Any

import torch
from torch import Tensor

from ..errors import FlagError
from ..positions import Positions
from ..precision import at_least_single
from .contract.base import Facts, PositionEncoding
from .contract.options import BIDIRECTIONAL, finite, option, parse_bool, positive
from .contract.registry import register_encoding
from .shared.rotations import as_complex, at_positions, rotations

#: xPos's gamma, and the distance after which a pair is multiplied by its zeta once
XPOS_GAMMA, XPOS_SCALE = 0.4, 512


@register_encoding("rotary")
class Rotary(PositionEncoding):
    r"""Rotates queries and keys by angles proportional to their positions, so that logits depend on the distance.

    .. math::
        A_{ij} &= (q_i R_i) (k_j R_j)^T / \sqrt{d} = q_i R_{i - j} k_j^T / \sqrt{d} \\
        (x_a, x_b) R_m &= (x_a \cos m \theta_t - x_b \sin m \theta_t, \; x_b \cos m \theta_t + x_a \sin m \theta_t),
        \quad \theta_t = \mathrm{base}^{-2t/r}

    Layout: pair t consists of dimensions (2t, 2t + 1) if ``interleaved``, as in the paper and GPT-J, or (t, t + r/2)
    if ``half``, as in GPT-NeoX and LLaMA; they differ by a fixed permutation of a head's dimensions. The first
    r = fraction d dimensions are rotated, all by default.

    With ``xpos``, xPos of Sun et al. (2023), https://arxiv.org/abs/2212.10554, in a decoder: pair t of a query is
    multiplied by zeta_t^(i / 512), of a key by zeta_t^(-j / 512), zeta_t = (2t/r + 0.4) / 1.4 < 1. The factor
    zeta_t^((i - j) / 512) shrinks with the distance to the left and would grow to the right, so an encoder, which
    attends to both sides, has rotary without it. The authors count positions from the middle of the sentence, which
    cancels out; here they are absolute in the factors, so that cached keys stay valid while the sentence grows, except
    in float16 outside incremental decoding.

    Two options scale rotations at test time, so that a model meets the angles of its training in longer sentences.
    ``rotary_linear_scale`` s divides positions by s (position interpolation, Chen et al. 2023,
    https://arxiv.org/abs/2306.15595); ``rotary_ntk_scale`` s multiplies the base by s^(r / (r - 2)), which leaves the
    fastest pair as it is and divides the slowest angle by s (bloc97's "NTK-aware" scaling).

    Between source and target, i is a position in the target and j one in the source, both from 0; or, with
    ``cross_start`` "after-source", i counts on from the end of the source, as in RedLLM (Zhang et al. 2025,
    https://arxiv.org/abs/2510.26622), which numbers source and target as one sequence.

    No parameters. Distances are unlimited. Extra time: O(B H (T + S) d), memory the same.
    """

    facts = Facts(reads="differences", supports_cross_attention=True)
    rotary_layout: str = option(
        "interleaved",
        str,
        "which dimensions form a pair: neighbours (interleaved), or one from each half of the head (half)",
        ("interleaved", "half"),
    )
    rotary_base: float = option(10000.0, positive, "base of the wavelengths, 10000 in the paper")
    rotary_fraction: float = option(
        1.0, float, "part of a head's dimensions that are rotated, the first ones; 1, all of them, by default"
    )
    xpos: bool = option(
        False,
        parse_bool,
        "xPos: in the decoder, products of queries and keys shrink with the distance; true or false (the default)",
        in_decoder_only=True,
    )
    cross_start: str = option(
        "zero",
        str,
        "where the target's positions begin between source and target: at 0 as in self-attention (zero), or after the "
        "source's last position (after-source)",
        ("zero", "after-source"),
        in_cross_attention_only=True,
    )
    rotary_linear_scale: float = option(1.0, finite(1), "divides positions at test time", is_flag=False, at_test=True)
    rotary_ntk_scale: float = option(
        1.0, finite(1), "divides the angle of the slowest pair at test time", is_flag=False, at_test=True
    )
    bidirectional: bool = option(True, BIDIRECTIONAL)

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        if head_dim % 2:
            raise FlagError(f"rotary rotates pairs of dimensions: the width of a head must be even, not {head_dim}.")
        if not 0 < self.rotary_fraction <= 1:
            raise FlagError(f"--rotary-fraction must be more than 0 and at most 1, not {self.rotary_fraction}.")
        #: whether factors shrink with the distance
        self.decays = self.xpos and not self.bidirectional
        #: how many dimensions of a head are rotated
        self.rotary_dim = round(self.rotary_fraction * head_dim)
        if self.rotary_dim % 2 or not self.rotary_dim:
            raise FlagError(
                f"--rotary-fraction {self.rotary_fraction} of a head's {head_dim} dimensions is {self.rotary_dim}, but "
                "dimensions are rotated in pairs: choose a fraction that gives an even number of at least 2."
            )
        if self.rotary_ntk_scale != 1 and self.rotary_dim == 2:
            raise FlagError("rotary_ntk_scale slows down all pairs but the first, and there is only one: leave it out.")

    @property
    def scaled_base(self) -> float:
        """The base of the wavelengths, with the scale of test time."""
        if self.rotary_ntk_scale == 1:
            return self.rotary_base
        return self.rotary_base * self.rotary_ntk_scale ** (self.rotary_dim / (self.rotary_dim - 2))

    def transform(self, q: Tensor, k: Tensor, v: Tensor, positions: Positions) -> tuple[Tensor, Tensor, Tensor]:
        # PyTorch supports few operations on complex numbers in half precision.
        precise = at_least_single(q.dtype)
        # xPos's factors fit float16 for twice as many positions if they are counted from the middle, as the authors do.
        # Cached keys must stay valid while the sentence grows.
        origin = positions.keys // 2 if q.dtype == torch.float16 and positions.cache.generation is None else 0

        def find(direction: int) -> tuple[Tensor, Tensor]:
            scaled = self.rotary_dim, self.scaled_base, self.rotary_linear_scale
            key = ("rotary", *scaled, self.cross_start, direction, origin, precise)
            return at_positions(
                positions,
                k.size(2),
                key,
                lambda places: self._factors(places, direction, origin, precise),
                q.device,
                positions.end if self.cross_start == "after-source" else 0,
            )

        query_rotations, key_rotations = find(1 if self.decays else 0)
        if self.decays:
            key_rotations = find(-1)[1]
        if k.size(2):
            k = self._rotate(k, key_rotations, precise)
        return self._rotate(q, query_rotations, precise), k, v

    def _factors(self, places: Tensor, direction: int, origin: int, precision: torch.dtype) -> Tensor:
        """The complex number with which each pair is multiplied at these positions, (..., n, r / 2).

        Args:
            direction: of xPos, 1 for queries and -1 for keys; 0 without xPos.
            origin: position at which xPos's factors are 1.
        """
        places = places.double() / self.rotary_linear_scale
        pair = torch.arange(self.rotary_dim // 2, device=places.device, dtype=torch.float64)
        turned = rotations(places, self.scaled_base ** (-2 * pair / self.rotary_dim), precision)
        if direction == 0:
            return turned
        zeta = (2 * pair / self.rotary_dim + XPOS_GAMMA) / (1 + XPOS_GAMMA)
        exponent = direction * (places - origin / self.rotary_linear_scale) / XPOS_SCALE
        return turned * (zeta ** exponent[..., None]).to(precision)

    def _rotate(self, x: Tensor, by: Tensor, dtype: torch.dtype) -> Tensor:
        """Rotates the pairs of x (B, H, n, d) as complex numbers, 7 times faster than with sines and cosines."""
        pairs = self._in_pairs(x[..., : self.rotary_dim].to(dtype))
        rotated = torch.view_as_real(as_complex(pairs) * by)
        half = self.rotary_layout == "half"
        rotated = (rotated.transpose(-2, -1) if half else rotated).flatten(-2).to(x.dtype)
        if self.rotary_dim == self.head_dim:
            return rotated
        return torch.cat([rotated, x[..., self.rotary_dim :]], dim=-1)

    def _in_pairs(self, x: Tensor) -> Tensor:
        """(B, H, n, r) to (B, H, n, r / 2, 2)."""
        if self.rotary_layout == "half":
            return torch.stack(x.chunk(2, dim=-1), dim=-1)
        return x.unflatten(-1, (-1, 2))
