"""The one model that this package registers: fairseq's Transformer, with a position encoding in self-attention."""

from __future__ import annotations

import copy
import json
import logging
import os
from argparse import ArgumentParser, Namespace
from functools import partial
from typing import Any

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, register_model
from fairseq.models.transformer import TransformerModel
from omegaconf import OmegaConf
from torch import Tensor

from .encodings import ENCODINGS
from .encodings.base import (
    Option,
    build_encoding,
    default_options,
    find_encoding,
    flag,
    flags_of,
    known_options,
    parse_bool,
)
from .layers import LayerEncodings, PositionDecoder, PositionEncoder, Stack

logger = logging.getLogger(__name__)

SIDES = ("source", "target")
INPUT_POSITIONS = ("none", "sinusoidal", "learned")
MODEL_FLAGS = {
    "input_positions": Option(
        str,
        "what is added to the embeddings of both stacks; an encoding inside attention may stand on any",
        INPUT_POSITIONS,
    ),
    "source_position_encoding": Option(
        str, "the encoder's encoding, where it is another than the architecture's", tuple(ENCODINGS)
    ),
    "target_position_encoding": Option(
        str, "the decoder's encoding, where it is another than the architecture's", tuple(ENCODINGS)
    ),
    "cross_attention_positions": Option(
        parse_bool, "the decoder's encoding in encoder-decoder attention too, true or false (the default)"
    ),
    "segment_separator": Option(
        str, "tells segments apart by this token: the segment of a token is the number of separators before it"
    ),
    "num_segments": Option(int, "segments that are told apart, 2 by default; later ones count as the last"),
}
#: "version" in the name makes fairseq's moving average of parameters (--store-ema) leave it alone
SIGNATURE = "position_version"


class PositionMismatch(RuntimeError):
    """A checkpoint was trained with other positions than the model it is loaded into."""


@register_model("transformer_posenc")
class PositionTransformer(TransformerModel):
    """fairseq's Transformer with the position encoding that its architecture names.

    Parameters have stock names. One buffer more, ``position_version``, holds the encoding and its options, so that a
    checkpoint cannot be loaded into a model that treats positions otherwise.
    """

    def __init__(self, args: Any, encoder: PositionEncoder, decoder: PositionDecoder) -> None:
        super().__init__(args, encoder, decoder)
        self.register_buffer(SIGNATURE, encode_signature(describe_positions(args)))

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        TransformerModel.add_args(parser)
        for name, option in MODEL_FLAGS.items():
            _add_flag(parser, name, option)
        for name, option in flags_of(known_options()).items():
            _add_flag(parser, name, option)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> PositionTransformer:
        if OmegaConf.is_config(args):
            # fairseq-hydra-train: TransformerConfig.from_namespace would lose every key that it does not declare.
            args = Namespace(**OmegaConf.to_container(args, resolve=True))
            check_keys(args, cls)
        check_arguments(args)
        model = super().build_model(args, task)
        if args.segment_separator is None and any(getattr(part, "needs_segments", False) for part in model.modules()):
            raise ValueError(
                "--segment-vectors has no meaning without --segment-separator, which tells segments apart."
            )
        return model

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: torch.nn.Embedding) -> PositionEncoder:
        stack = Stack(
            _layer_encodings(cfg, "source", cfg.encoder, cfg.max_source_positions, bidirectional=True),
            separator=_separator(cfg, src_dict, "source"),
            recomputed=cfg.checkpoint_activations,
        )
        return PositionEncoder(_with_input_positions(cfg, "source"), src_dict, embed_tokens, stack)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: torch.nn.Embedding) -> PositionDecoder:
        cross = None
        if cfg.cross_attention_positions and not cfg.no_cross_attention:
            longest = max(cfg.max_source_positions, cfg.max_target_positions)
            cross = _layer_encodings(cfg, "target", cfg.decoder, longest, bidirectional=True)
        stack = Stack(
            _layer_encodings(cfg, "target", cfg.decoder, cfg.max_target_positions, bidirectional=False),
            cross,
            separator=_separator(cfg, tgt_dict, "target"),
            recomputed=cfg.checkpoint_activations,
        )
        return PositionDecoder(
            _with_input_positions(cfg, "target"), tgt_dict, embed_tokens, stack, no_encoder_attn=cfg.no_cross_attention
        )

    def load_state_dict(
        self, state_dict: dict[str, Tensor], strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """As fairseq's, but refuses a checkpoint that was trained with other positions; under
        ``--finetune-from-model`` its other parameters are taken and the new tables stay fresh.

        Raises:
            PositionMismatch: the checkpoint's encoding or options are not this model's.
        """
        own = self.state_dict()
        theirs = state_dict.get(SIGNATURE)
        restores_average = theirs is None and not strict  # what fairseq's moving average puts back into its own model
        if not restores_average and (theirs is None or not torch.equal(theirs.cpu(), own[SIGNATURE].cpu())):
            found = "stock fairseq" if theirs is None else decode_signature(theirs)
            wanted = decode_signature(own[SIGNATURE])
            if self._starts_finetuning():
                state_dict = self._transplant(state_dict, own)
            elif theirs is None and json.loads(wanted)["encoding"] in ("sinusoidal", "learned"):
                state_dict = {**state_dict, SIGNATURE: own[SIGNATURE]}
            else:
                message = (
                    f"The checkpoint was trained with other positions ({found}) than this model has ({wanted}): give "
                    "the flags it was trained with, or start from it with --finetune-from-model in a new --save-dir."
                )
                # fairseq's trainer replaces the error by one that does not say why.
                logger.error(message)
                raise PositionMismatch(message)
        return super().load_state_dict(state_dict, strict=strict, model_cfg=model_cfg, args=args)

    def _starts_finetuning(self) -> bool:
        """fairseq's own rule: --finetune-from-model counts only while the save directory has no last checkpoint."""
        save_dir = getattr(self.args, "save_dir", None) or ""
        return bool(getattr(self.args, "finetune_from_model", None)) and not os.path.exists(
            os.path.join(save_dir, "checkpoint_last.pt")
        )

    def _transplant(self, state_dict: dict[str, Tensor], own: dict[str, Tensor]) -> dict[str, Tensor]:
        """``state_dict`` with the position parameters that this model has: the checkpoint's where name and shape are
        the same, else fresh ones."""

        def positional(name: str) -> bool:
            return ".position_encoding." in name or ".embed_positions." in name

        fresh = {
            name: tensor
            for name, tensor in own.items()
            if positional(name) and (name not in state_dict or state_dict[name].shape != tensor.shape)
        }
        logger.info("fine-tuning: fresh position parameters: %s", ", ".join(sorted(fresh)) or "none")
        kept = {name: tensor for name, tensor in state_dict.items() if name in own or not positional(name)}
        return {**kept, **fresh, SIGNATURE: own[SIGNATURE]}


def encode_signature(description: dict[str, Any]) -> Tensor:
    """As int64, which neither half precision nor a sum changes, and of which fairseq's averages make no float."""
    return torch.tensor(list(json.dumps(description, sort_keys=True).encode()), dtype=torch.int64)


def decode_signature(signature: Tensor) -> str:
    return bytes(signature.tolist()).decode()


def encoding_of(args: Any, side: str) -> str:
    """The encoding's name in the encoder, "source", or the decoder, "target"."""
    own = getattr(args, f"{side}_position_encoding", None)
    if own is not None:
        return own
    # what an encoding is not defined for in a decoder, another does
    return (side == "target" and find_encoding(args.position_encoding).in_decoder) or args.position_encoding


def input_positions_of(args: Any, side: str) -> str:
    """What is added to the embeddings of this side: what the user said, else what its encoding wants."""
    return getattr(args, "input_positions", None) or find_encoding(encoding_of(args, side)).input_positions


def describe_positions(args: Any) -> dict[str, Any]:
    """What makes two models treat positions alike: the encodings, their options, and what is added to the input."""
    source, target = (
        {
            "encoding": encoding_of(args, side),
            "input_positions": input_positions_of(args, side),
            **_options_of(args, encoding_of(args, side)),
        }
        for side in SIDES
    )
    description = source if source == target else {**source, "target": target}
    if args.cross_attention_positions:
        description["cross_attention_positions"] = True
    if args.segment_separator is not None:
        description |= {"segment_separator": args.segment_separator, "num_segments": args.num_segments}
    return description


def _options_of(args: Any, encoding: str) -> dict[str, Any]:
    """The value of each flag of an encoding: the user's, else the encoding's default."""
    cls = find_encoding(encoding)
    defaults = default_options(cls)
    typed = {name: getattr(args, name, None) for name in flags_of(cls.options)}
    return {name: defaults[name] if value is None else value for name, value in typed.items()}


def check_arguments(args: Namespace) -> None:
    """Refuses what has no meaning together, before anything is built.

    Raises:
        ValueError: one sentence that names the flag and the mend.
    """
    arch = getattr(args, "arch", None) or getattr(args, "_name", "")
    encodings = {side: encoding_of(args, side) for side in SIDES}
    described = " and ".join(dict.fromkeys(encodings.values()))
    own = {option for encoding in encodings.values() for option in find_encoding(encoding).options}
    for option in flags_of(known_options()):
        if option not in own and getattr(args, option, None) is not None:
            raise ValueError(f"{flag(option)} has no meaning for {arch} (encoding {described}): leave it out.")
    if find_encoding(encodings["target"]).in_decoder is not None:
        raise ValueError(
            f"--target-position-encoding {encodings['target']}: it mixes all keys, which would show a decoder the "
            f"words that it is to predict; say {find_encoding(encodings['target']).in_decoder} instead."
        )
    for key, value in input_flags(args).items():
        if getattr(args, key) != value:
            wanted = " and ".join(dict.fromkeys(input_positions_of(args, side) for side in SIDES))
            raise ValueError(
                f"{flag(key)} contradicts {arch}, whose positions at the input are: {wanted}; say --input-positions "
                "with the ones that are meant instead."
            )
    if args.cross_attention_positions and not find_encoding(encodings["target"]).crosses:
        crossing = ", ".join(name for name, cls in ENCODINGS.items() if cls.crosses)
        raise ValueError(
            f"--cross-attention-positions: {encodings['target']} is not defined between source and target; the "
            f"decoder's encoding must be one of {crossing}."
        )
    if args.num_segments is not None and args.segment_separator is None:
        raise ValueError("--num-segments has no meaning without --segment-separator, which tells segments apart.")
    if getattr(args, "cross_self_attention", False):
        raise ValueError(
            "--cross-self-attention cannot be used: its keys are of two sentences, between which there is no distance."
        )
    for key in ("encoder_xformers_att_config", "decoder_xformers_att_config"):
        if getattr(args, key, None):
            raise ValueError(f"{flag(key)} cannot be used: xFormers attention knows nothing of position encodings.")


def check_keys(args: Namespace, model: type[PositionTransformer]) -> None:
    """Refuses a misspelt key of fairseq-hydra-train, which fairseq takes in silence for a model with presets.

    Raises:
        ValueError: one sentence that names the key.
    """
    parser = ArgumentParser()
    model.add_args(parser)
    preset = Namespace()
    ARCH_CONFIG_REGISTRY[args._name](preset)
    known = {action.dest for action in parser._actions} | set(vars(preset)) | {"_name", "arch"}
    for key in vars(args):
        if key not in known:
            raise ValueError(f"model.{key} is no option of {args._name}: mend its spelling or leave it out.")


def input_flags(args: Any) -> dict[str, bool]:
    """fairseq's own settings for what is added to the embeddings."""
    source, target = (input_positions_of(args, side) for side in SIDES)
    return {
        "no_token_positional_embeddings": source == target == "none",
        "encoder_learned_pos": source == "learned",
        "decoder_learned_pos": target == "learned",
    }


def _with_input_positions(cfg: Any, side: str) -> Any:
    """The configuration with fairseq's switch for input positions, one for both stacks, as this side needs it."""
    cfg = copy.copy(cfg)
    cfg.no_token_positional_embeddings = input_positions_of(cfg, side) == "none"
    return cfg


def _layer_encodings(cfg: Any, side: str, of_side: Any, max_positions: int, bidirectional: bool) -> LayerEncodings:
    """Encodings for the layers of ``of_side``, which is ``cfg.encoder`` or ``cfg.decoder``."""
    name = encoding_of(cfg, side)
    of_place = {"max_positions": max_positions, "bidirectional": bidirectional}
    options = {option: value for option, value in of_place.items() if option in find_encoding(name).options}
    return LayerEncodings(
        partial(
            build_encoding,
            name,
            of_side.attention_heads,
            of_side.embed_dim // of_side.attention_heads,
            num_segments=None if cfg.segment_separator is None else cfg.num_segments,
            **options,
            **_options_of(cfg, name),
        )
    )


def _separator(cfg: Any, dictionary: Any, side: str) -> int | None:
    """The index of the separator of segments.

    Raises:
        ValueError: the dictionary does not have it.
    """
    if cfg.segment_separator is None:
        return None
    if cfg.segment_separator not in dictionary:
        raise ValueError(
            f"--segment-separator {cfg.segment_separator}: the {side} dictionary has no such token; give one that "
            "stands in the training text by itself, as subword segmentation leaves it."
        )
    return dictionary.index(cfg.segment_separator)


def _add_flag(parser: ArgumentParser, name: str, option: Option) -> None:
    parser.add_argument(flag(name), type=_argparse_type(option.parse), choices=option.choices, help=option.help)


def _argparse_type(parse: Any) -> Any:
    """argparse reports a ValueError by the name of the function, so this one lends its own words."""

    def convert(text: str) -> Any:
        return parse(text)

    convert.__name__ = {"parse_bool": "true/false"}.get(parse.__name__, parse.__name__)
    return convert
