"""The fairseq seam: an encoder and a decoder whose attention takes a position encoding, and whose learned
input positions a gain; nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules import FairseqDropout, MultiheadAttention
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn

from .attention.module import IncrementalState, PositionAttention, PositionCrossAttention, current_positions, passing
from .attention.positions import CrossPositions, Positions, count_separators
from .encodings import PositionEncoding
from .input_positions import add_gain


class LayerEncodings:
    """Makes the encoding of each layer, and lets layers share what they should."""

    def __init__(self, make_encoding: Callable[[], PositionEncoding]) -> None:
        self._make_encoding = make_encoding
        self._first: PositionEncoding | None = None

    def next(self) -> PositionEncoding:
        """For one more layer: a new one, or the one that all layers share."""
        if self._first is None:
            self._first = self._make_encoding()
            return self._first
        if self._first.shared_by_layers:
            return self._first
        encoding = self._make_encoding()
        encoding.tie(self._first)
        return encoding


class Stack:
    """What the layers of one stack share: who makes their encodings, and how positions are told.

    Args:
        self_attention: the encodings of its layers.
        cross: those of encoder-decoder attention; None leaves that to fairseq.
        separator: the token that ends a segment; None where segments are not told apart.
        recomputed: under activation checkpointing.
        backend: how self-attention is computed.
    """

    def __init__(
        self,
        self_attention: LayerEncodings,
        cross: LayerEncodings | None = None,
        separator: int | None = None,
        recomputed: bool = False,
        backend: str = "auto",
    ) -> None:
        self.self_attention = self_attention
        self.cross = cross
        self.separator = separator
        self.recomputed = recomputed
        self.backend = backend

    def segments(self, tokens: Tensor) -> Tensor | None:
        return None if self.separator is None else count_separators(tokens, self.separator)


class _PositionLayer(nn.Module):
    """What both kinds of layer do to hand the stack's positions to their attention.

    They travel as an argument of ``forward``, since fairseq's activation checkpointing calls ``forward`` a second time
    long after the pass is over, with the arguments of the first.
    """

    def __init__(self, cfg: Any, *args: Any, stack: Stack, **kwargs: Any) -> None:
        self.stack = stack  # before fairseq's constructor, which calls build_self_attention
        super().__init__(cfg, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, positions=current_positions(), **kwargs)

    def forward(self, *args: Any, positions: Positions | None = None, **kwargs: Any) -> Any:
        with passing(positions):
            return super().forward(*args, **kwargs)


class PositionEncoderLayer(_PositionLayer, TransformerEncoderLayerBase):
    def build_self_attention(self, embed_dim: int, cfg: Any) -> PositionAttention:
        return PositionAttention(
            embed_dim,
            cfg.encoder.attention_heads,
            self.stack.self_attention.next(),
            self_attention=True,
            backend=self.stack.backend,
            **_attention_settings(self, cfg),
        )


class PositionDecoderLayer(_PositionLayer, TransformerDecoderLayerBase):
    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> PositionAttention:
        return PositionAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            self.stack.self_attention.next(),
            self_attention=True,
            backend=self.stack.backend,
            **_attention_settings(self, cfg),
        )

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> MultiheadAttention:
        if self.stack.cross is None:
            return super().build_encoder_attention(embed_dim, cfg)
        return PositionCrossAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            self.stack.cross.next(),
            encoder_decoder_attention=True,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            **_attention_settings(self, cfg),
        )


def _attention_settings(layer: Any, cfg: Any) -> dict[str, Any]:
    return {
        "dropout": cfg.attention_dropout,
        "q_noise": layer.quant_noise,
        "qn_block_size": layer.quant_noise_block_size,
    }


def _wrap(layer: nn.Module, cfg: Any) -> nn.Module:
    """Activation checkpointing and sharding, in the order and under the conditions of fairseq's stacks."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)


class PositionEncoder(TransformerEncoderBase):
    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding, stack: Stack) -> None:
        self.stack = stack
        super().__init__(cfg, dictionary, embed_tokens)
        add_gain(self, cfg.bias_gain)

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        return _wrap(PositionEncoderLayer(cfg, return_fc=self.return_fc, stack=self.stack), cfg)

    def forward(self, src_tokens: Tensor, *args: Any, **kwargs: Any) -> dict[str, list[Tensor]]:
        length = src_tokens.size(1)
        positions = Positions(
            length,
            length,
            src_tokens.eq(self.padding_idx),
            segments=self.stack.segments(src_tokens),
            recomputed=self.stack.recomputed,
        )
        with passing(positions):
            output = super().forward(src_tokens, *args, **kwargs)
        output["src_tokens"] = [src_tokens]  # for attention from the decoder; fairseq reorders them with the beams
        return output


class PositionDecoder(TransformerDecoderBase):
    def __init__(
        self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding, stack: Stack, no_encoder_attn: bool = False
    ) -> None:
        self.stack = stack
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn=no_encoder_attn)
        add_gain(self, cfg.bias_gain)

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
        positions = Positions(
            queries,
            keys,
            prev_output_tokens.eq(self.padding_idx),
            segments=self.stack.segments(prev_output_tokens),
            recomputed=self.stack.recomputed,
            generation=None if incremental_state is None else incremental_state.setdefault("positions", {}),
        )
        if self.stack.cross is not None and encoder_out is not None:
            source = encoder_out["src_tokens"][0]
            positions.cross = CrossPositions(positions, source.eq(self.padding_idx), self.stack.segments(source))
        with passing(positions):
            return super().extract_features(prev_output_tokens, encoder_out, incremental_state, *args, **kwargs)


#: our classes, and what fairseq calls dropout in those that they stand for
_NAMES_OF_DROPOUT = {
    "PositionEncoder": "TransformerEncoder",
    "PositionDecoder": "TransformerDecoder",
    "PositionEncoderLayer": "TransformerEncoderLayerBase",
    "PositionDecoderLayer": "TransformerDecoderLayerBase",
    "PositionAttention": "MultiheadAttention",
    "PositionCrossAttention": "MultiheadAttention",
}


def name_dropout_as_stock(model: nn.Module) -> None:
    """Gives dropout the names that it has in fairseq's Transformer: ``--retain-dropout-modules`` selects by them, and
    fairseq takes them from the names of classes."""
    for module in model.modules():
        if isinstance(module, FairseqDropout):
            module.module_name = _NAMES_OF_DROPOUT.get(module.module_name, module.module_name)
