"""``PositionTransformer``, the model of all architectures: fairseq's Transformer with position encodings."""

from __future__ import annotations

import copy
import json
import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from fairseq.models import register_model
from fairseq.models.transformer import TransformerModel
from omegaconf import OmegaConf
from torch import Tensor

from .arguments import (
    SIDES,
    add_flags,
    arch_of,
    check_arguments,
    check_keys,
    encodings_at,
    input_positions_of,
    layers_at,
    longest_at,
    stack_of,
)
from .augmentation.choice import build_augmentation
from .compat import COPIES
from .encodings import PositionEncoding, build_encoding
from .encodings.contract.base import ADDED
from .encodings.contract.gain import modules_with_scalars, present_scalars, scale_around
from .encodings.contract.registry import Choice, add_gain, has_scalars, supports_urpe
from .encodings.query_key import QueryKeyVectors
from .errors import CheckpointError, FlagError
from .input_positions import LearnedPositions
from .layers import LayerEncodings, PositionDecoder, PositionEncoder, StackSettings, name_dropout_as_stock
from .live import log_positions
from .position_record import (
    POSITION_RECORD,
    canonical_record,
    describe_positions,
    encode_record,
    module_record,
    parse_record,
    related_encodings,
)

logger = logging.getLogger(__name__)

#: the positions of stock fairseq's Transformer, in the form of describe_positions
STOCK = [{"encoding": name} for name in ("sinusoidal", "learned")]

_starts_fine_tuning: ContextVar[bool] = ContextVar("starts_fine_tuning", default=False)


@contextmanager
def fine_tuning(starts: bool = True) -> Iterator[None]:
    """Within the context, if ``starts``, models accept the parameters of a checkpoint with different positions."""
    token = _starts_fine_tuning.set(starts)
    try:
        yield
    finally:
        _starts_fine_tuning.reset(token)


class PositionMismatch(CheckpointError):
    """A checkpoint was trained with different positions than those of the model."""


@register_model("transformer_posenc")
class PositionTransformer(TransformerModel):
    """fairseq's Transformer with the position encoding of its architecture.

    Parameters keep fairseq's names. The additional buffer ``position_version`` (see :mod:`.position_record`) records
    the encoding and its options, so that a model with different positions refuses the checkpoint.
    """

    def __init__(self, args: Any, encoder: PositionEncoder, decoder: PositionDecoder) -> None:
        super().__init__(args, encoder, decoder)
        self.register_buffer(POSITION_RECORD, encode_record(describe_positions(args)))
        name_dropout_as_stock(self)

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        TransformerModel.add_args(parser)
        add_flags(parser)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> PositionTransformer:
        if OmegaConf.is_config(args):
            # fairseq-hydra-train: TransformerConfig.from_namespace would drop keys that it does not declare.
            args = Namespace(**OmegaConf.to_container(args, resolve=True))
            check_keys(args, cls)
        check_arguments(args)
        model = super().build_model(args, task)
        if args.bias_gain is not None and not any(modules_with_scalars(model)):
            raise FlagError(
                f"--bias-gain has no meaning for {arch_of(args)}, which learns no scalars in attention and no "
                "input positions: leave it out."
            )
        if args.log_positions:
            log_positions(model, args.log_positions)
        return model

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: torch.nn.Embedding) -> PositionEncoder:
        settings = _settings(cfg, "source", src_dict)
        return PositionEncoder(_with_input_positions(cfg, "source"), src_dict, embed_tokens, settings)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: torch.nn.Embedding) -> PositionDecoder:
        settings = _settings(cfg, "target", tgt_dict)
        return PositionDecoder(_with_input_positions(cfg, "target"), tgt_dict, embed_tokens, settings)

    def load_state_dict(
        self, state_dict: dict[str, Tensor], strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """Loads parameters, and refuses a checkpoint that was trained with different positions.

        A stock checkpoint without input positions looks like one with sinusoids, which have no parameters. Inside
        :func:`fine_tuning` all other parameters are loaded, and new position parameters keep their initial values.

        Raises:
            PositionMismatch: the checkpoint's encoding or options differ from this model's.
        """
        own = self.state_dict()
        state_dict = {key: value for key, value in state_dict.items() if key.rpartition(".")[2] not in COPIES}
        theirs = state_dict.get(POSITION_RECORD)
        restores_average = theirs is None and not strict  # fairseq's EMA loads its own parameters this way
        recorded = None if theirs is None else canonical_record(theirs)
        wanted = canonical_record(own[POSITION_RECORD])
        starts_fine_tuning = _starts_fine_tuning.get() and not restores_average
        is_stock = theirs is None and json.loads(wanted) in STOCK
        if recorded == wanted or (is_stock and not starts_fine_tuning):
            state_dict = state_dict | {POSITION_RECORD: own[POSITION_RECORD]}  # earlier versions wrote equivalent ones
        elif starts_fine_tuning:
            trained_with = json.loads(recorded or "{}")
            state_dict = self._with_own_gain(state_dict, trained_with)
            state_dict = self._with_own_positions(state_dict, trained_with, own)
        elif not restores_average:
            raise PositionMismatch(
                f"The checkpoint was trained with other positions ({recorded or 'stock fairseq'}) than this model has "
                f"({wanted}): use the flags of that training, or start from it with --finetune-from-model in a new "
                "--save-dir."
            )
        return super().load_state_dict(state_dict, strict=strict, model_cfg=model_cfg, args=args)

    def _with_own_gain(self, state_dict: dict[str, Tensor], trained_with: dict[str, Any]) -> dict[str, Tensor]:
        """``state_dict`` with learned scalars rescaled from the checkpoint's --bias-gain to this model's."""
        changed = dict(state_dict)
        for place, module in modules_with_scalars(self):
            recorded_as = "input_gain" if isinstance(module, LearnedPositions) else "bias_gain"
            ratio = module_record(trained_with, place).get(recorded_as, 1.0) / module.bias_gain
            for name in present_scalars(module):
                key = f"{place}.{name}"
                if key in state_dict:
                    changed[key] = scale_around(state_dict[key], module.scalars[name], ratio)
        return changed

    def _with_own_positions(
        self, state_dict: dict[str, Tensor], trained_with: dict[str, Any], own: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """``state_dict`` with this model's position parameters.

        A position parameter keeps the checkpoint's value if the model has one of the same name and shape, and with the
        same meaning: their encodings are the same, or one extends the other. The model's other position parameters are
        added with their initial values, the checkpoint's others are removed.
        """
        records = trained_with, parse_record(own[POSITION_RECORD])

        def positional(name: str) -> bool:
            return ".position_encoding." in name or ".embed_positions." in name

        def means_the_same(name: str) -> bool:
            module, in_encoding, parameter = name.partition(".position_encoding.")
            related = related_encodings(*(module_record(record, module) for record in records))
            return not in_encoding or parameter.startswith(ADDED) or related

        fresh = {
            name: tensor
            for name, tensor in own.items()
            if positional(name)
            and (name not in state_dict or state_dict[name].shape != tensor.shape or not means_the_same(name))
        }
        logger.info("fine-tuning: fresh position parameters: %s", ", ".join(sorted(fresh)) or "none")
        taken = {name: tensor for name, tensor in state_dict.items() if name in own or not positional(name)}
        return {**taken, **fresh, POSITION_RECORD: own[POSITION_RECORD]}


def _with_input_positions(cfg: Any, side: str) -> Any:
    """A copy of the configuration with fairseq's flag for input positions, one for both stacks, set for this side."""
    cfg = copy.copy(cfg)
    cfg.no_token_positional_embeddings = input_positions_of(cfg, side) == "none"
    return cfg


def _settings(cfg: Any, side: str, dictionary: Any) -> StackSettings:
    """The settings of a stack."""
    crosses = side == "target" and layers_at(cfg, "cross")
    return StackSettings(
        _layer_encodings(cfg, side),
        _layer_encodings(cfg, "cross") if crosses else None,
        fuses_cross_attention=_fuses_cross_attention(cfg),
        separator=_separator(cfg, dictionary, side),
        recomputed=cfg.checkpoint_activations,
        backend=cfg.attention_backend or "auto",
        augmentation=build_augmentation(
            cfg,
            [choice.cls for choice in encodings_at(cfg, side)],
            input_positions_of(cfg, side),
            getattr(cfg, f"max_{side}_positions"),
        ),
    )


def _fuses_cross_attention(cfg: Any) -> bool:
    """Whether cross-attention without positions trains with PyTorch's fused kernel.

    By default it does not where all of the model's attention is stock fairseq's, so that results are, too, to the bit.
    """
    if cfg.attention_backend not in (None, "auto"):
        return bool(cfg.attention_backend != "eager")
    return cfg.segment_separator is not None or any(
        choice.cls.hooks for side in SIDES for choice in encodings_at(cfg, side)
    )


def _layer_encodings(cfg: Any, place: str) -> LayerEncodings:
    """The encodings for the layers of a place."""
    choices, stack = layers_at(cfg, place), getattr(cfg, stack_of(place))
    layers = choices * (stack.layers if len(choices) == 1 else 1)
    return LayerEncodings(layers, partial(_make_encoding, cfg, place, stack))


def _make_encoding(cfg: Any, place: str, stack: Any, choice: Choice) -> PositionEncoding:
    """Builds an encoding for one layer.

    Raises:
        FlagError: it needs segments, but there is no separator.
    """
    name, cls = choice.name, choice.cls
    by_place = {"max_positions": longest_at(cfg, place), "bidirectional": place != "target"}
    options = {option: value for option, value in by_place.items() if option in cls.options}
    options |= dict(choice.options)
    num_segments = None if cfg.segment_separator is None else cfg.num_segments
    # --urpe and --bias-gain may be meant for the other stack only.
    urpe = bool(cfg.urpe) and supports_urpe(cls)
    heads = stack.attention_heads
    encoding = build_encoding(name, heads, stack.embed_dim // heads, num_segments, urpe=urpe, **options)
    if place == "cross" and isinstance(encoding, QueryKeyVectors) and cfg.encoder.embed_dim != stack.embed_dim:
        raise FlagError(
            f"{name} between source and target has vectors of one width: set --encoder-embed-dim and "
            "--decoder-embed-dim to the same number."
        )
    if encoding.needs_segments and cfg.segment_separator is None:
        raise FlagError(f"{name} with these flags needs segments: set --segment-separator to the token that ends one.")
    if cfg.bias_gain is not None and has_scalars(encoding):
        add_gain(encoding, cfg.bias_gain)
    return encoding


def _separator(cfg: Any, dictionary: Any, side: str) -> int | None:
    """The index of --segment-separator in the dictionary.

    Raises:
        FlagError: the dictionary does not contain it.
    """
    if cfg.segment_separator is None:
        return None
    index = dictionary.indices.get(cfg.segment_separator, 0)
    if index < dictionary.nspecial:
        raise FlagError(
            f"--segment-separator {cfg.segment_separator} is not in the {side} dictionary; use a token that occurs in "
            "the training text after subword segmentation."
        )
    return index
