"""Linformer of Wang et al. (2020), https://arxiv.org/abs/2006.04768, alone and with DIET's absolute positions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..positions import Positions
from .contract.base import Facts, PositionEncoding
from .contract.options import MAX_POSITIONS, POSITION_SHARING, option, whole
from .contract.registry import register_encoding
from .diet import POSITION_RANK
from .shared.tables import check_length


class LengthProjection(nn.Module):
    """Linformer's E and F: project the keys and values of a sentence to a fixed length, the same for all heads.

    Parameters: ``keys`` E and ``values`` F, each (projection_length, max_positions); column t is position t.
    """

    def __init__(self, projection_length: int, max_positions: int) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.empty(projection_length, max_positions))
        self.values = nn.Parameter(torch.empty(projection_length, max_positions))
        for matrix in (self.keys, self.values):
            nn.init.uniform_(matrix, -(projection_length**-0.5), projection_length**-0.5)

    def forward(self, k: Tensor, v: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        """Projects k and v (B, H, S, d), S at most max_positions, to (B, H, projection_length, d), without padding."""
        return self._mix(self.keys, k, positions), self._mix(self.values, v, positions)

    def _mix(self, matrix: Tensor, x: Tensor, positions: Positions) -> Tensor:
        columns = positions.key_positions  # (B or 1, S)
        mixing = matrix[:, columns].transpose(0, 1).to(x.dtype)  # (B or 1, projection_length, S)
        if positions.padding_mask is not None:
            mixing = mixing.masked_fill(positions.padding_mask[:, None, :], 0)
        return mixing[:, None] @ x


class _LengthProjecting(PositionEncoding):
    """Base class of encodings that project the length of keys and values.

    They have no causal form: a mixture of all keys contains the tokens that a decoder must predict. Another encoding
    replaces them in the decoder.
    """

    facts = Facts(reads="integers", projects_length=True)
    projection_length: int = option(32, whole(1), "length to which Linformer projects keys and values")
    max_positions: int = option(1024, MAX_POSITIONS)

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        self.projection = LengthProjection(self.projection_length, self.max_positions)

    def transform(self, q: Tensor, k: Tensor, v: Tensor, positions: Positions) -> tuple[Tensor, Tensor, Tensor]:
        check_length(self, max(positions.extent), self.max_positions)
        return q, *self.projection(k, v, positions)


@register_encoding("linformer")
class Linformer(_LengthProjecting):
    r"""Linformer attention with sinusoids added to the embeddings; the baseline of ``diet_abs_lin``.

    .. math:: \mathrm{softmax}(q_i (E k)^T / \sqrt{d}) \, F v

    For the encoder only; the decoder uses ``sinusoidal``.

    Parameters: ``projection.keys`` E and ``projection.values`` F, each (projection_length, max_positions), for all
    heads of a layer. Longer sequences are refused. Time and memory: O(n projection_length) instead of O(n^2).
    """

    facts = replace(_LengthProjecting.facts, input_positions="sinusoidal", in_decoder="sinusoidal")


@register_encoding("diet_abs_lin")
class DietAbsLin(_LengthProjecting):
    r"""DIET's absolute positions in a Linformer encoder.

    .. math:: A_{ij} = q_i ((E k)_j)^T / \sqrt{d} + (P_Q P_K^T)_{ij}  \quad (4)

    j numbers the mixtures, so P_K has projection_length rows. The equation projects the input X before W_K; here, as in
    Linformer's own code, E and F project keys and values, which differs by the biases of W_K and W_V only. For the
    encoder only; the decoder uses ``diet_abs``. The equation has no segment term.

    Parameters: ``query_positions`` (H, max_positions, D) and ``key_positions`` (H, projection_length, D), or
    (1, ..., D) if heads share them; all layers share them with ``position_sharing`` "layer" and "all".
    ``projection.keys`` E and ``projection.values`` F, each (projection_length, max_positions), for each layer, shared
    by its heads. Longer sequences are refused. Time and memory: O(n projection_length).
    """

    facts = replace(_LengthProjecting.facts, in_decoder="diet_abs")
    position_rank: int | None = option(None, POSITION_RANK)
    position_sharing: str = option("layer", POSITION_SHARING)

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        if self.shared_by_layers:  # each layer has its own E and F
            self.shared_by_layers = ("query_positions", "key_positions")
        heads, rank = self.table_heads, self.position_rank or head_dim
        self.query_positions = nn.Parameter(torch.empty(heads, self.max_positions, rank))
        self.key_positions = nn.Parameter(torch.empty(heads, self.projection_length, rank))
        for table in (self.query_positions, self.key_positions):
            nn.init.normal_(table, std=0.02)  # as diet_abs

    def bias(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        def product() -> Tensor:
            return self.query_positions[:, : positions.extent[0]] @ self.key_positions.transpose(1, 2)

        # (H or 1, positions, projection_length)
        matrix = positions.cache.get(self.query_positions, product, learned=True).to(q.dtype)
        return matrix[:, positions.query_positions].transpose(0, 1)  # (B or 1, H or 1, T, projection_length)
