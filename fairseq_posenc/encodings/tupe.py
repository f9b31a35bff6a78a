"""Untied positional encoding of Ke, He and Liu (2021), "TUPE", https://arxiv.org/abs/2006.15595."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..positions import relative_distances
from .contract.options import BIDIRECTIONAL, MAX_DISTANCE, MAX_POSITIONS, NUM_BUCKETS, option, parse_bool
from .contract.registry import register_encoding
from .shared.buckets import by_clamped_distance, log_buckets
from .shared.pairs import PairBias


@register_encoding("tupe_abs")
class TupeAbs(PairBias):
    r"""Logits of absolute position vectors with their own projections, added to the content logits.

    .. math:: A_{ij} = \frac{q_i k_j^T}{\sqrt{2d}} + \frac{(\mathrm{LN}(p_i) U_Q) (\mathrm{LN}(p_j) U_K)^T}{\sqrt{2d}}
        \quad (7)

    As in the authors' code, the projections have biases, and the layers of a stack share all parameters. With
    ``untie_first_token`` (eq. 10) the position term from the first token is one scalar per head, and the term from the
    other tokens to the first is another. As in the authors' code, they are the position terms of an extra vector p'_0
    with itself, and of p_0 with itself.

    Parameters: ``position_vectors`` (max_positions, H d), or (max_positions + 1, H d) with ``untie_first_token``, where
    row 0 is p'_0; ``norm.weight``, ``norm.bias`` (H d); ``query_projection`` and ``key_projection``, each ``.weight``
    (H d, H d) as in nn.Linear and ``.bias`` (H d). Positions are counted from 0 without padding. Longer sequences are
    refused. Extra time O(n (H d)^2 + n^2 H d), once for all layers and the batch; memory O(H n^2), or O(B H n^2) with
    left padding.
    """

    facts = replace(PairBias.facts, supports_cross_attention=True)
    untie_first_token: bool = option(
        False, parse_bool, "learn separate biases from and to the first token (TUPE's [CLS]), true or false"
    )
    max_positions: int = option(1024, MAX_POSITIONS)
    shared_by_layers = True

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        width = num_heads * head_dim
        self.position_vectors = nn.Parameter(torch.empty(self.max_positions + self.untie_first_token, width))
        self.norm = nn.LayerNorm(width)
        self.query_projection = nn.Linear(width, width)
        self.key_projection = nn.Linear(width, width)
        for weight in (self.position_vectors, self.query_projection.weight, self.key_projection.weight):
            nn.init.normal_(weight, std=0.02)  # the authors', as in BERT
        for projection in (self.query_projection, self.key_projection):
            nn.init.zeros_(projection.bias)

    @property
    def scaling(self) -> float:
        return (2 * self.head_dim) ** -0.5

    def matrix(self, queries: int, keys: int) -> Tensor:
        first = int(self.untie_first_token)
        vectors = self.norm(self.position_vectors[: first + max(queries, keys)])
        u_q = self._split_heads(self.query_projection(vectors)) * self.scaling
        u_k = self._split_heads(self.key_projection(vectors))
        product = u_q[:, first : first + queries] @ u_k[:, first : first + keys].transpose(1, 2)
        if self.untie_first_token:
            from_first, to_first = ((u_q[:, t] * u_k[:, t]).sum(-1, keepdim=True) for t in (0, 1))  # (H, 1) each
            product = with_first_token(product, from_first, to_first)
        return product

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.view(len(x), self.num_heads, self.head_dim).transpose(0, 1)


@register_encoding("tupe_rel")
class TupeRel(TupeAbs):
    r"""TUPE with a relative bias in addition to the absolute term.

    .. math:: A_{ij} = \frac{q_i k_j^T}{\sqrt{2d}} + \frac{(\mathrm{LN}(p_i) U_Q) (\mathrm{LN}(p_j) U_K)^T}{\sqrt{2d}}
        + b_{\mathrm{bucket}(j - i)}  \quad (8)

    Buckets are T5's, to the left only in a decoder (the paper has no decoder). With ``untie_first_token`` two scalars
    per head also replace the relative bias from and to the first token.

    Parameters: those of ``tupe_abs``, and ``relative_bias`` (H, num_buckets), with ``untie_first_token`` also
    ``first_token_bias`` (H, 2): from the first token, to it.
    """

    num_buckets: int = option(32, NUM_BUCKETS)
    max_distance: int = option(128, MAX_DISTANCE)
    bidirectional: bool = option(True, BIDIRECTIONAL)
    scalars = {"relative_bias": 0.0, "first_token_bias": 0.0}
    buckets: Tensor

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        buckets = log_buckets(self.num_buckets, self.max_distance, self.bidirectional)
        self.register_buffer("buckets", buckets, persistent=False)
        self.relative_bias = nn.Parameter(torch.empty(num_heads, self.num_buckets))
        nn.init.normal_(self.relative_bias, std=0.02)
        self.first_token_bias = nn.Parameter(torch.zeros(num_heads, 2)) if self.untie_first_token else None

    def matrix(self, queries: int, keys: int) -> Tensor:
        absolute = super().matrix(queries, keys)
        longest = max(queries, keys)
        distances = relative_distances(longest, longest, absolute.device)[:queries, :keys]
        relative = self.effective("relative_bias")[:, by_clamped_distance(self.buckets, distances)]
        if self.first_token_bias is not None:
            relative = with_first_token(relative, *self.effective("first_token_bias").split(1, dim=1))
        return absolute + relative


def with_first_token(matrix: Tensor, from_first: Tensor, to_first: Tensor) -> Tensor:
    """Replaces the first column of a matrix (H, n, m) by ``to_first`` (H, 1), then the first row by ``from_first``."""
    is_first = torch.zeros(matrix.shape[1:], dtype=torch.bool, device=matrix.device)
    column, row = is_first.clone(), is_first
    column[:, 0], row[0] = True, True
    return torch.where(row, from_first[:, :, None], torch.where(column, to_first[:, :, None], matrix))
