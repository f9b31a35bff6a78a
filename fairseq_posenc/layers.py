"""The fairseq seam: an encoder and a decoder whose self-attention takes a position encoding, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn

from .attention import IncrementalState, PositionAttention
from .encodings.base import PositionEncoding
from .positions import Positions


class Stack:
    """What the layers of one stack share: who makes their encodings, and the positions of the pass under way."""

    def __init__(self, make_encoding: Callable[[], PositionEncoding]) -> None:
        self._make_encoding = make_encoding
        self._shared: PositionEncoding | None = None
        self.positions: Positions | None = None

    def encoding(self) -> PositionEncoding:
        """For one more layer: a new one, or the one that all layers share."""
        encoding = self._shared or self._make_encoding()
        if encoding.shared_by_layers:
            self._shared = encoding
        return encoding

    @contextmanager
    def passing(self, positions: Positions) -> Iterator[None]:
        """Makes ``positions`` those of the forward pass inside."""
        self.positions = positions
        try:
            yield
        finally:
            self.positions = None


class _PositionLayer(nn.Module):
    """What both kinds of layer do to hand the stack's positions to their self-attention.

    They travel as an argument of ``forward``, since fairseq's activation checkpointing calls ``forward`` a second time
    long after the pass is over, with the arguments of the first.
    """

    self_attn: PositionAttention

    def __init__(self, cfg: Any, *args: Any, stack: Stack, **kwargs: Any) -> None:
        self.stack = stack  # before fairseq's constructor, which calls build_self_attention
        super().__init__(cfg, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, positions=self.stack.positions, **kwargs)

    def forward(self, *args: Any, positions: Positions | None = None, **kwargs: Any) -> Any:
        self.self_attn.positions = positions
        return super().forward(*args, **kwargs)


class PositionEncoderLayer(_PositionLayer, TransformerEncoderLayerBase):
    def build_self_attention(self, embed_dim: int, cfg: Any) -> PositionAttention:
        return _self_attention(self, embed_dim, cfg.encoder.attention_heads, cfg)


class PositionDecoderLayer(_PositionLayer, TransformerDecoderLayerBase):
    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> PositionAttention:
        return _self_attention(self, embed_dim, cfg.decoder.attention_heads, cfg)


def _self_attention(layer: Any, embed_dim: int, num_heads: int, cfg: Any) -> PositionAttention:
    return PositionAttention(
        embed_dim,
        num_heads,
        layer.stack.encoding(),
        dropout=cfg.attention_dropout,
        q_noise=layer.quant_noise,
        qn_block_size=layer.quant_noise_block_size,
    )


def _wrap(layer: nn.Module, cfg: Any) -> nn.Module:
    """Activation checkpointing and sharding, in the order and under the conditions of fairseq's stacks."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)


class PositionEncoder(TransformerEncoderBase):
    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding, stack: Stack) -> None:
        self.stack = stack
        super().__init__(cfg, dictionary, embed_tokens)

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        return _wrap(PositionEncoderLayer(cfg, return_fc=self.return_fc, stack=self.stack), cfg)

    def forward(self, src_tokens: Tensor, *args: Any, **kwargs: Any) -> dict[str, list[Tensor]]:
        length = src_tokens.size(1)
        positions = Positions(length, length, src_tokens.eq(self.padding_idx))
        with self.stack.passing(positions):
            return super().forward(src_tokens, *args, **kwargs)


class PositionDecoder(TransformerDecoderBase):
    def __init__(
        self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding, stack: Stack, no_encoder_attn: bool = False
    ) -> None:
        self.stack = stack
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn=no_encoder_attn)

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        return _wrap(PositionDecoderLayer(cfg, no_encoder_attn, stack=self.stack), cfg)

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None = None,
        incremental_state: IncrementalState | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        # In cached decoding fairseq hands over the whole prefix and computes its last token only.
        keys = prev_output_tokens.size(1)
        queries = keys if incremental_state is None else 1
        positions = Positions(queries, keys, prev_output_tokens.eq(self.padding_idx))
        with self.stack.passing(positions):
            return super().extract_features(prev_output_tokens, encoder_out, incremental_state, *args, **kwargs)
