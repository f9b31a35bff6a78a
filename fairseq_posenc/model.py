"""The one model that this package registers: fairseq's Transformer, with a position encoding in self-attention."""

from __future__ import annotations

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

from .encodings.base import build_encoding, find_encoding, flag, known_options
from .layers import PositionDecoder, PositionEncoder, Stack

logger = logging.getLogger(__name__)

INPUT_POSITIONS = ("none", "sinusoidal", "learned")
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
        parser.add_argument(
            "--input-positions",
            choices=INPUT_POSITIONS,
            help="what is added to the embeddings of both stacks; an encoding inside attention may stand on any",
        )
        for name, option in known_options().items():
            parser.add_argument(flag(name), type=_argparse_type(option.parse), choices=option.choices, help=option.help)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> PositionTransformer:
        if OmegaConf.is_config(args):
            # fairseq-hydra-train: TransformerConfig.from_namespace would lose every key that it does not declare.
            args = Namespace(**OmegaConf.to_container(args, resolve=True))
            check_keys(args, cls)
        check_arguments(args)
        return super().build_model(args, task)

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: torch.nn.Embedding) -> PositionEncoder:
        return PositionEncoder(cfg, src_dict, embed_tokens, _stack(cfg, cfg.encoder))

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: torch.nn.Embedding) -> PositionDecoder:
        return PositionDecoder(
            cfg, tgt_dict, embed_tokens, _stack(cfg, cfg.decoder), no_encoder_attn=cfg.no_cross_attention
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


def describe_positions(args: Any) -> dict[str, Any]:
    """What makes two models treat positions alike: the encoding, its options, and what is added to the input."""
    encoding = args.position_encoding
    return {
        "encoding": encoding,
        "input_positions": args.input_positions,
        # parsed: fairseq-hydra-train hands over "4" where fairseq-train has 4
        **{name: option.parse(getattr(args, name)) for name, option in find_encoding(encoding).options.items()},
    }


def check_arguments(args: Namespace) -> None:
    """Refuses what has no meaning together, before anything is built.

    Raises:
        ValueError: one sentence that names the flag and the mend.
    """
    arch, encoding = getattr(args, "arch", None) or getattr(args, "_name", ""), args.position_encoding
    own = find_encoding(encoding).options
    for option in known_options():
        if option not in own and getattr(args, option, None) is not None:
            raise ValueError(f"{flag(option)} has no meaning for {arch} (encoding {encoding}): leave it out.")
    wanted = args.input_positions
    for key, value in input_flags(wanted).items():
        if getattr(args, key) != value:
            raise ValueError(
                f"{flag(key)} contradicts {arch}, which adds {wanted} positions to the input: say --input-positions "
                f"{' or '.join(INPUT_POSITIONS)} instead."
            )
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


def input_flags(input_positions: str) -> dict[str, bool]:
    """fairseq's own settings for what is added to the embeddings."""
    learned = input_positions == "learned"
    return {
        "no_token_positional_embeddings": input_positions == "none",
        "encoder_learned_pos": learned,
        "decoder_learned_pos": learned,
    }


def _stack(cfg: Any, side: Any) -> Stack:
    """The stack of one side, ``cfg.encoder`` or ``cfg.decoder``."""
    options = {name: getattr(cfg, name) for name in find_encoding(cfg.position_encoding).options}
    make = partial(
        build_encoding, cfg.position_encoding, side.attention_heads, side.embed_dim // side.attention_heads, **options
    )
    return Stack(make)


def _argparse_type(parse: Any) -> Any:
    """argparse reports a ValueError by the name of the function, so this one lends its own words."""

    def convert(text: str) -> Any:
        return parse(text)

    convert.__name__ = {"parse_bool": "true/false"}.get(parse.__name__, parse.__name__)
    return convert
