"""What attention is computed from: queries, keys and values as an encoding changes them, its bias, and the masks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..encodings.contract.base import PositionEncoding, Projections
from ..kernels.flex import ScoreMod, chained, dense_score_mod
from ..kernels.learned_bias import softmax
from ..masks import Masks, four_dimensions
from ..positions import Positions
from .key_value_cache import Saved, extend

#: number of keys below which PyTorch's softmax of rows is 3 to 5 times slower on a CPU than its softmax of columns
SHORT = 16


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """What a backend computes attention from.

    Args:
        q: (B, H, T, d), after the encoding's ``transform``, not yet scaled.
        k, v: (B, H, S, d), after the encoding's ``transform``.
        positions: of the queries and keys, with the padding.
        masks: padding and ``attn_mask``.
        dropout: dropout probability of the attention weights.
        from_input: what the encoding's ``read_layer`` returned for all keys, (B, H, S, m).
        prepared: in a block of queries, what the encoding's ``prepare`` returned for all queries.
        finished_bias: in a block of queries, its rows of a bias that was computed for all queries.
    """

    encoding: PositionEncoding
    q: Tensor
    k: Tensor
    v: Tensor
    positions: Positions
    masks: Masks
    dropout: float
    from_input: Tensor | None = None
    prepared: Any = None
    finished_bias: Tensor | None = None

    @classmethod
    def from_projected(
        cls,
        encoding: PositionEncoding,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Positions,
        attn_mask: Tensor | None,
        dropout: float,
        layer_input: Tensor | None,
        projections: Projections | None,
        cache: Saved | None = None,
    ) -> AttentionInputs:
        """Calls the encoding's ``read_layer`` and ``transform``, extends the cache, and makes the masks.

        Args:
            q: (B, H, T, d), projected.
            k, v: (B, H, S, d), projected; in incremental decoding those of the new tokens only.
            layer_input: (B, S, H d), the input of the layer, read only by an encoding with the hook ``read_layer``.
            cache: in incremental decoding, what is cached of earlier tokens, to which the new ones are added.
        """
        from_input = None
        if "read_layer" in encoding.hooks:
            assert layer_input is not None, "attention has the input of its layer"
            from_input = encoding.read_layer(layer_input, projections)
        q, k, v = encoding.transform(q, k, v, positions)
        if cache is not None:
            k, v, from_input = extend(cache, k, v, from_input)
        # Mixtures of keys contain no padding: ``transform`` has removed it.
        masks = Masks.cached(positions, attn_mask, q.dtype, hides_padding=not encoding.facts.projects_length)
        return cls(encoding, q, k, v, positions, masks, dropout, from_input)

    def block(self, q: Tensor, start: int, keys: int, prepared: Any, bias: Tensor | None) -> AttentionInputs:
        """The inputs for q, the queries from ``start`` on, and the first ``keys`` keys.

        Args:
            prepared: what the encoding's ``prepare`` returned.
            bias: the rows of these queries, if the bias was computed for all queries.
        """
        stop = start + q.size(2)

        def first(x: Tensor) -> Tensor:
            # Sliced only if keys are left out: the gradient of a slice fills a tensor of all keys with zeros.
            return x if x.size(2) == keys else x[:, :, :keys]

        return replace(
            self,
            q=q,
            k=first(self.k),
            v=first(self.v),
            positions=self.positions.block(start, stop, keys),
            masks=self.masks.block(start, stop, keys),
            from_input=None if self.from_input is None else first(self.from_input),
            prepared=prepared,
            finished_bias=bias if bias is None or self.k.size(2) == keys else bias[..., :keys],
        )

    @cached_property
    def scaled_q(self) -> Tensor:
        return self.q * self.encoding.scaling

    @property
    def _given(self) -> dict[str, Any]:
        """What the encoding's ``bias`` and ``score_mod`` get beside q, k and the positions."""
        given = {"from_input": self.from_input, "prepared": self.prepared}
        return {name: value for name, value in given.items() if value is not None}

    def bias(self) -> Tensor | None:
        """The bias of the encoding plus that of segments, broadcastable to (B, H, T, S)."""
        if self.finished_bias is not None:
            return self.finished_bias
        encoding = self.encoding
        bias = None
        if "bias" in encoding.hooks:
            bias = encoding.bias(self.scaled_q, self.k, self.positions, **self._given)
        if (between_segments := self._segment_bias()) is not None:
            bias = between_segments if bias is None else bias + between_segments
        return None if bias is None else four_dimensions(bias)

    def _segment_bias(self) -> Tensor | None:
        segments = self.encoding.segments
        return None if segments is None else segments(self.positions).to(self.q.dtype)

    def masked_bias(self) -> Tensor | None:
        """The bias plus the masks, broadcastable to (B, H, T, S)."""
        bias, mask = self.bias(), self.masks.additive
        if bias is not None and bias.dtype not in (self.q.dtype, torch.float32):
            bias = bias.to(self.q.dtype)  # the fused kernel takes no others
        if bias is None or mask is None:
            return mask if bias is None else bias
        return bias + mask

    def score_mod(self) -> ScoreMod | None:
        """The bias of the encoding and of segments as FlexAttention's ``score_mod``."""
        encoding, score_mod = self.encoding, None
        if "bias" in encoding.hooks:
            score_mod = encoding.score_mod(self.scaled_q, self.k, self.positions, **self._given)
        if (between_segments := self._segment_bias()) is not None:
            score_mod = chained(score_mod, dense_score_mod(between_segments))
        return score_mod

    def logits(self) -> Tensor:
        """The logits before masks, (B, H, T, S)."""
        bias = self.bias()
        logits = self.encoding.content(self.scaled_q, self.k, self.positions)
        if bias is not None:
            logits += bias  # in place: from some hundred tokens on attention is bound by memory
        return logits

    def weights(self, logits: Tensor) -> Tensor:
        """The weights of these logits before dropout, (B, H, T, S), in single precision at least.

        The logits are overwritten.
        """
        encoding, logits = self.encoding, self.masks.applied_to(logits)
        if logits.size(-1) < SHORT and logits.device.type == "cpu" and encoding.changes_attention:
            weights = softmax(logits.permute(3, 0, 1, 2), dim=0).permute(1, 2, 3, 0).contiguous()
        else:
            weights = softmax(logits)
        return weights if encoding.urpe is None else weights * encoding.urpe(self.positions).to(weights.dtype)

    def output_and_weights(self) -> tuple[Tensor, Tensor]:
        """The output (B, H, T, d), and the weights before dropout, (B, H, T, S)."""
        weights = self.weights(self.logits()).to(self.v.dtype)
        dropped = F.dropout(weights, self.dropout) if self.dropout > 0 else weights
        if "context" not in self.encoding.hooks:
            return dropped @ self.v, weights
        context = self.encoding.context(dropped, self.positions)
        output = dropped @ self.v  # last: a checkpoint that recomputes the weights then leaves this product out
        output += context
        return output, weights
