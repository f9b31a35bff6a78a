"""fairseq's encoder and decoder with a position encoding in attention and a gain on learned input positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules import FairseqDropout, MultiheadAttention
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn

from . import compat
from .attention.module import (
    FusedCrossAttention,
    IncrementalState,
    PositionAttention,
    PositionCrossAttention,
    StackPositions,
    current_positions,
    use_positions,
)
from .augmentation.modes import Augmentation
from .caches import Cache
from .encodings import PositionEncoding
from .encodings.contract.registry import Choice
from .input_positions import replace_input_positions
from .positions import CrossPositions, Positions, count_separators


class LayerEncodings:
    """Makes the encoding of each layer of a stack; layers of one choice may share it or some of its parameters.

    Args:
        choices: each layer's choice.
        make: makes the encoding of a choice.
    """

    def __init__(self, choices: Sequence[Choice], make: Callable[[Choice], PositionEncoding]) -> None:
        self._choices = iter(choices)
        self._make = make
        self._first: dict[Choice, PositionEncoding] = {}

    def next(self) -> PositionEncoding:
        """The encoding of the next layer."""
        choice = next(self._choices)
        if choice not in self._first:
            self._first[choice] = self._make(choice)
            return self._first[choice]
        first = self._first[choice]
        shared = first.shared_by_layers
        if shared is True:
            return first
        encoding = self._make(choice)
        for name in shared or ():
            setattr(encoding, name, getattr(first, name))
        encoding.urpe = first.urpe  # as the authors of URPE do
        return encoding


@dataclass(frozen=True)
class StackSettings:
    """Settings that the layers of an encoder or decoder have in common.

    Args:
        self_attention: the encodings of self-attention.
        cross_attention: the encodings of cross-attention; None for cross-attention without positions.
        fuses_cross_attention: whether cross-attention without positions trains with PyTorch's fused kernel.
        separator: index of the token that ends a segment; None without segments.
        recomputed: whether layers run again in the backward pass (activation checkpointing).
        backend: the backend of self-attention.
        augmentation: gives tokens other positions than 0, 1, 2, ...
    """

    self_attention: LayerEncodings
    cross_attention: LayerEncodings | None
    fuses_cross_attention: bool
    separator: int | None
    recomputed: bool
    backend: str
    augmentation: Augmentation

    def segments(self, tokens: Tensor) -> Tensor | None:
        """The segment of each token; None without segments."""
        return None if self.separator is None else count_separators(tokens, self.separator)

    def positions(
        self, tokens: Tensor, padding_idx: int, queries: int, generation: dict[Any, Any] | None = None
    ) -> Positions:
        """The positions of a pass: the last ``queries`` of the tokens (batch, length), and all of them as keys."""
        cache = Cache(self.recomputed, generation)
        return Positions(queries, tokens.size(1), tokens.eq(padding_idx), segments=self.segments(tokens), cache=cache)


class _PositionLayer(nn.Module):
    """Passes positions from the stack to the attention modules of a layer.

    Positions are an argument of ``forward`` because activation checkpointing calls ``forward`` again in the backward
    pass, outside the context of the forward pass.
    """

    def __init__(self, cfg: Any, *args: Any, settings: StackSettings, **kwargs: Any) -> None:
        self.settings = settings  # before fairseq's constructor, which calls build_self_attention
        super().__init__(cfg, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, positions=current_positions(), **kwargs)

    def forward(self, *args: Any, positions: StackPositions | None = None, **kwargs: Any) -> Any:
        with use_positions(positions):
            return super().forward(*args, **kwargs)

    def _attention(self, cls: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
        """An attention module of this class, with the arguments that all modules have in common."""
        noise = {"q_noise": self.quant_noise, "qn_block_size": self.quant_noise_block_size}
        return cls(*args, dropout=cfg.attention_dropout, **noise, **kwargs)

    def _self_attention(self, embed_dim: int, heads: int, cfg: Any) -> PositionAttention:
        more = {"self_attention": True, "backend": self.settings.backend}
        return self._attention(PositionAttention, cfg, embed_dim, heads, self.settings.self_attention.next(), **more)


class PositionEncoderLayer(_PositionLayer, TransformerEncoderLayerBase):
    """fairseq's encoder layer with positions in its attention.

    fairseq 0.12.2 keeps copies of a layer's parameters for a function of torch that computes the whole layer. It would
    leave out positions, so that the copies are removed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in compat.COPIES & set(self._parameters):
            delattr(self, name)

    # 0.12.2's method fills the copies, and lets the layer use them.
    _load_from_state_dict = nn.Module._load_from_state_dict

    def build_self_attention(self, embed_dim: int, cfg: Any) -> PositionAttention:
        return self._self_attention(embed_dim, cfg.encoder.attention_heads, cfg)


class PositionDecoderLayer(_PositionLayer, TransformerDecoderLayerBase):
    """fairseq's decoder layer with positions in its attention."""

    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> PositionAttention:
        return self._self_attention(embed_dim, cfg.decoder.attention_heads, cfg)

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> MultiheadAttention:
        source = {"encoder_decoder_attention": True, "kdim": cfg.encoder.embed_dim, "vdim": cfg.encoder.embed_dim}
        heads, encodings = cfg.decoder.attention_heads, self.settings.cross_attention
        if encodings is not None:
            return self._attention(PositionCrossAttention, cfg, embed_dim, heads, encodings.next(), **source)
        if self.settings.fuses_cross_attention:
            return self._attention(FusedCrossAttention, cfg, embed_dim, heads, **source)
        return super().build_encoder_attention(embed_dim, cfg)


def _wrap(layer: nn.Module, cfg: Any) -> nn.Module:
    """Wraps a layer for activation checkpointing and sharding as fairseq's stacks do."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)


class PositionEncoder(TransformerEncoderBase):
    """fairseq's encoder with positions in its attention."""

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding, settings: StackSettings) -> None:
        self.settings = settings
        super().__init__(cfg, dictionary, embed_tokens)
        replace_input_positions(self, cfg)

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        return _wrap(PositionEncoderLayer(cfg, return_fc=self.return_fc, settings=self.settings), cfg)

    def forward(self, src_tokens: Tensor, *args: Any, **kwargs: Any) -> dict[str, list[Tensor]]:
        positions = self.settings.positions(src_tokens, self.padding_idx, src_tokens.size(1))
        positions, for_target = self.settings.augmentation.source_positions(positions, self.training)
        with use_positions(StackPositions(positions)):
            output = super().forward(src_tokens, *args, **kwargs)
        output["src_tokens"] = [src_tokens]  # for the decoder; fairseq reorders this entry with the beams
        return output | for_target


class PositionDecoder(TransformerDecoderBase):
    """fairseq's decoder with positions in its attention."""

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding, settings: StackSettings) -> None:
        self.settings = settings
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn=cfg.no_cross_attention)
        replace_input_positions(self, cfg)
        if cfg.length_encoding is not None:
            positions: Any = self.embed_positions
            positions.length_encoding = cfg.length_encoding
            positions.length_ratio = cfg.length_ratio or positions.length_ratio

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        return _wrap(PositionDecoderLayer(cfg, no_encoder_attn, settings=self.settings), cfg)

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None = None,
        incremental_state: IncrementalState | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        # In incremental decoding fairseq passes the whole prefix, but computes the last token only.
        queries = prev_output_tokens.size(1) if incremental_state is None else 1
        generation = None if incremental_state is None else incremental_state.setdefault("positions", {})
        positions = self.settings.positions(prev_output_tokens, self.padding_idx, queries, generation)
        # A translation in training mode must not draw again in each of its steps.
        training = self.training and incremental_state is None
        augmentation = self.settings.augmentation
        positions = augmentation.target_positions(positions, training, encoder_out)
        cross = None
        if encoder_out is not None:
            # The output of another encoder may lack its tokens and its padding.
            output: dict[str, Any] = encoder_out
            [source], [padding] = (output.get(key) or [None] for key in ("src_tokens", "encoder_padding_mask"))
            if padding is None:
                length, batch, _ = encoder_out["encoder_out"][0].shape
                padding = torch.zeros(batch, length, dtype=torch.bool, device=positions.device)
            segments = None if source is None else self.settings.segments(source)
            cross = CrossPositions(positions, padding, segments, augmentation.source_shift)
        if training and alignment_layer is None:
            alignment_layer = -1  # no layer: fairseq would return the last layer's weights, which no training reads
        alignment = full_context_alignment, alignment_layer, alignment_heads
        with use_positions(StackPositions(positions, cross)):
            return super().extract_features(prev_output_tokens, encoder_out, incremental_state, *alignment)


#: fairseq's class for each of these classes
_STOCK_CLASS_NAMES = {
    "PositionEncoder": "TransformerEncoder",
    "PositionDecoder": "TransformerDecoder",
    "PositionEncoderLayer": "TransformerEncoderLayerBase",
    "PositionDecoderLayer": "TransformerDecoderLayerBase",
    "PositionAttention": "MultiheadAttention",
    "PositionCrossAttention": "MultiheadAttention",
    "FusedCrossAttention": "MultiheadAttention",
}


def name_dropout_as_stock(model: nn.Module) -> None:
    """Gives dropout modules the names that they have in fairseq's Transformer.

    fairseq names them after the class of the enclosing module, and ``--retain-dropout-modules`` selects by that name.
    """
    for module in model.modules():
        if isinstance(module, FairseqDropout):
            module.module_name = _STOCK_CLASS_NAMES.get(module.module_name, module.module_name)
