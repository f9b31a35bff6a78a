"""The flags of this package's architectures: what they mean together, and which combinations are refused."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY, FairseqEncoderDecoderModel

from .attention.backends import BACKENDS
from .encodings import ENCODINGS, find_encoding
from .encodings.options import BIAS_GAIN, NUM_SEGMENTS, Option, flag, flags_of, parse_bool
from .encodings.registry import default_options, known_options
from .errors import FlagError

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
    "num_segments": NUM_SEGMENTS,
    "bias_gain": BIAS_GAIN,
    "attention_backend": Option(
        str,
        "how self-attention is computed, which changes nothing but time and memory: auto (the default) is the fastest "
        "that was measured; sdpa PyTorch's fused kernel; flex FlexAttention, for long sequences on a GPU; eager all "
        "logits at once; blocks some queries at a time, for long sequences anywhere",
        tuple(BACKENDS),
    ),
}


def plugin_flags() -> dict[str, Option]:
    """All flags that are not fairseq's: those of the model and of every encoding."""
    return MODEL_FLAGS | flags_of(known_options())


def add_flags(parser: ArgumentParser) -> None:
    """Adds all flags that are not fairseq's."""
    for name, option in plugin_flags().items():
        parser.add_argument(flag(name), type=_argparse_type(option.parse), choices=option.choices, help=option.help)


def _argparse_type(parse: Any) -> Any:
    """``parse``, so that argparse prints the message of its ValueError; for types argparse has its own message."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return parse if isinstance(parse, type) else convert


def arch_of(args: Any) -> str:
    """The architecture's name, from fairseq-train or from fairseq-hydra-train."""
    return str(getattr(args, "arch", None) or getattr(args, "_name", ""))


def encoding_of(args: Any, side: str) -> str:
    """The encoding's name in the encoder, "source", or the decoder, "target"."""
    own = getattr(args, f"{side}_position_encoding", None)
    if own is not None:
        return own
    # an encoding that is not defined in a decoder is replaced there
    return (side == "target" and find_encoding(args.position_encoding).in_decoder) or args.position_encoding


def input_positions_of(args: Any, side: str) -> str:
    """What is added to the embeddings of this side: the user's choice, else the encoding's."""
    return getattr(args, "input_positions", None) or find_encoding(encoding_of(args, side)).input_positions


def typed_options(args: Any, encoding: str) -> dict[str, Any]:
    """The user's values of an encoding's flags, without those that have no effect beside the others: they may be meant
    for the encoding of the other side.
    """
    cls = find_encoding(encoding)
    typed = {name: getattr(args, name, None) for name in flags_of(cls.options)}
    given = {name: value for name, value in typed.items() if value is not None}
    idle = cls.idle_options(given)
    return {name: value for name, value in given.items() if name not in idle}


def options_of(args: Any, encoding: str) -> dict[str, Any]:
    """The value of each flag of an encoding: the user's, else the encoding's default."""
    cls = find_encoding(encoding)
    defaults = default_options(cls)
    return {name: defaults[name] for name in flags_of(cls.options)} | typed_options(args, encoding)


def check_arguments(args: Namespace) -> None:
    """Refuses flags that have no meaning together, before anything is built.

    Raises:
        ValueError: one sentence that names the flag and the fix.
    """
    arch = arch_of(args)
    encodings = {side: encoding_of(args, side) for side in SIDES}
    described = " and ".join(dict.fromkeys(encodings.values()))
    used = {option for encoding in encodings.values() for option in typed_options(args, encoding)}
    typed = [option for option in flags_of(known_options()) if getattr(args, option, None) is not None]
    idle = {
        option: f" {reason}"
        for encoding in encodings.values()
        for option, reason in find_encoding(encoding).idle_options(typed).items()
    }
    for option in typed:
        if option not in used:
            raise FlagError(
                f"{flag(option)} has no meaning for {arch} (encoding {described}){idle.get(option, '')}: leave it out."
            )
    if find_encoding(encodings["target"]).in_decoder is not None:
        raise FlagError(
            f"--target-position-encoding {encodings['target']}: it is not defined in a decoder; say "
            f"{find_encoding(encodings['target']).in_decoder} instead."
        )
    for key, value in input_flags(args).items():
        if getattr(args, key) != value:
            wanted = " and ".join(dict.fromkeys(input_positions_of(args, side) for side in SIDES))
            raise FlagError(
                f"{flag(key)} contradicts {arch}, whose positions at the input are: {wanted}; say --input-positions "
                "with the ones that are meant instead."
            )
    if args.cross_attention_positions and args.no_cross_attention:
        raise FlagError("--cross-attention-positions has no meaning with --no-cross-attention: leave one of them out.")
    if args.cross_attention_positions and not find_encoding(encodings["target"]).supports_cross_attention:
        supported = ", ".join(name for name, cls in ENCODINGS.items() if cls.supports_cross_attention)
        raise FlagError(
            f"--cross-attention-positions: {encodings['target']} is not defined between source and target; the "
            f"decoder's encoding must be one of {supported}."
        )
    if args.num_segments is not None and args.segment_separator is None:
        raise FlagError("--num-segments has no meaning without --segment-separator, which tells segments apart.")
    if getattr(args, "cross_self_attention", False):
        raise FlagError(
            "--cross-self-attention cannot be used: its keys are of two sentences, between which there is no distance."
        )
    for key in ("encoder_xformers_att_config", "decoder_xformers_att_config"):
        if getattr(args, key, None):
            raise FlagError(f"{flag(key)} cannot be used: xFormers attention knows nothing of position encodings.")


def check_keys(args: Namespace, model: type[FairseqEncoderDecoderModel]) -> None:
    """Refuses a misspelled key of fairseq-hydra-train, which fairseq silently ignores for a model with presets.

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
            raise FlagError(f"model.{key} is no option of {args._name}: fix its spelling or leave it out.")


def input_flags(args: Any) -> dict[str, bool]:
    """fairseq's own settings for what is added to the embeddings."""
    source, target = (input_positions_of(args, side) for side in SIDES)
    return {
        "no_token_positional_embeddings": source == target == "none",
        "encoder_learned_pos": source == "learned",
        "decoder_learned_pos": target == "learned",
    }
