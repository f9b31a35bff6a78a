"""Gated relative biases of Chen et al. (2022), "WavLM", https://arxiv.org/abs/2110.13900."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..kernels.flex import ScoreMod
from ..positions import Positions
from .contract.registry import register_encoding
from .t5 import T5


@register_encoding("gated_t5")
class GatedT5(T5):
    r"""T5's biases, multiplied for each query and head by a number between 1 and 2 + w that the query determines.

    .. math:: A_{ij} = q_i k_j^T / \sqrt{d} + b_{\mathrm{bucket}(j - i)} \left(g^a_i (g^b_i w - 1) + 2\right), \quad
        g^a_i = \sigma(\textstyle\sum_{c \le 4} (W q_i + u)_c), \;
        g^b_i = \sigma(\textstyle\sum_{4 < c \le 8} (W q_i + u)_c)

    q_i is not scaled here. It is the projected query, as in the authors' BEATs; WavLM uses the head's part of the
    layer's input.

    Parameters: ``relative_bias`` as of ``t5``, shared by layers by default; for each layer ``gate_scale`` w (H,), and
    W and u, ``gate_projection.weight`` (8, d) and ``gate_projection.bias`` (8,), which heads share. Extra time
    O(B H T (S + d)) and memory O(B H T S).
    """

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        if self.shared_by_layers:  # each layer has its own gates
            self.shared_by_layers = ("relative_bias",)
        self.gate_projection = nn.Linear(head_dim, 8)
        self.gate_scale = nn.Parameter(torch.ones(num_heads))
        nn.init.normal_(self.gate_projection.weight, std=0.02)  # the authors'
        nn.init.zeros_(self.gate_projection.bias)

    def learned_by_distance(self, positions: Positions) -> dict[str, Tensor]:
        return {"relative_bias": self.bias_by_distance(positions)}

    def gate(self, q: Tensor) -> Tensor:
        """The factor on the biases of each query, (B, H, T, 1); q is scaled."""
        weight, bias = (x.to(q.dtype) for x in self.gate_projection.parameters())
        by_token = q.permute(2, 0, 1, 3) / self.scaling  # (T, B, H, d), as in memory, so that nothing is copied
        a, b = F.linear(by_token, weight, bias).unflatten(-1, (2, 4)).sum(-1).sigmoid().unbind(-1)  # (T, B, H) each
        factors = a * (b * self.gate_scale.to(q.dtype) - 1) + 2
        return factors.permute(1, 2, 0)[..., None]

    def bias(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        # The key is the parameter, which layers may share: they then expand it once.
        by_distance = positions.cache.get(
            self.relative_bias,
            lambda: positions.by_distance(self.bias_by_distance(positions).to(q.dtype)),
            learned=True,
        )
        return self.gate(q) * by_distance

    def score_mod(self, q: Tensor, k: Tensor, positions: Positions) -> ScoreMod:
        by_distance, gate = super().score_mod(q, k, positions), self.gate(q)[..., 0]
        return lambda score, b, h, i, j: score + gate[b, h, i] * by_distance(torch.zeros_like(score), b, h, i, j)
