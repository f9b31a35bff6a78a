"""The flags of this package's architectures: their definitions, their values for each stack, and validation."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY, FairseqEncoderDecoderModel

from .attention.backends import BACKENDS
from .augmentation import choice as augmentation
from .encodings import ENCODINGS, find_encoding
from .encodings.contract.options import BIAS_GAIN, NUM_SEGMENTS, URPE, Option, flag, flags_of, parse_bool, whole
from .encodings.contract.registry import default_options, known_options, supports_urpe
from .errors import FlagError

SIDES = ("source", "target")
INPUT_POSITIONS = ("none", "sinusoidal", "learned")
MODEL_FLAGS = {
    "input_positions": Option(
        str,
        "position vectors added to the embeddings of encoder and decoder, in addition to an encoding in attention; by "
        "default those of the encoding",
        INPUT_POSITIONS,
    ),
    "sinusoids": Option(
        str,
        "which sinusoids are added to the embeddings: fairseq's (the default) or the paper's, with sine and cosine in "
        "turn, wavelengths of 10000^(2i/d), and positions from 0",
        ("fairseq", "paper"),
    ),
    "source_position_encoding": Option(str, "the encoder's encoding; by default the architecture's", tuple(ENCODINGS)),
    "target_position_encoding": Option(str, "the decoder's encoding; by default the architecture's", tuple(ENCODINGS)),
    "cross_attention_positions": Option(
        parse_bool, "use the decoder's encoding in cross-attention too, true or false (the default)"
    ),
    "segment_separator": Option(
        str, "token that ends a segment; the segment of a token is the number of separators before it"
    ),
    "num_segments": NUM_SEGMENTS,
    "bias_gain": BIAS_GAIN,
    "urpe": URPE,
    "attention_backend": Option(
        str,
        "how self-attention is computed; the result is the same, time and memory differ: auto (the default) chooses "
        "the fastest in our measurements; sdpa is PyTorch's fused kernel; flex is FlexAttention, for long sequences on "
        "a GPU; eager computes all logits at once; blocks computes blocks of queries, for long sequences on any device",
        tuple(BACKENDS),
    ),
    "log_positions": Option(
        whole(0),
        "every so many updates, log the mean attended distance and the norm of the position parameters of each layer; "
        "0 (the default) never does",
    ),
    **augmentation.FLAGS,
}


def plugin_flags() -> dict[str, Option]:
    """The flags that this package adds to fairseq's: those of the model and of every encoding."""
    return MODEL_FLAGS | flags_of(known_options())


def add_flags(parser: ArgumentParser) -> None:
    """Adds this package's flags to the parser."""
    for name, option in plugin_flags().items():
        parser.add_argument(flag(name), type=_argparse_type(option.parse), choices=option.choices, help=option.help)


def _argparse_type(parse: Any) -> Any:
    """Wraps ``parse`` so that argparse prints the message of its ValueError. Built-in types need no wrapper."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return parse if isinstance(parse, type) else convert


def arch_of(args: Any) -> str:
    """The architecture's name, from the arguments of fairseq-train or of fairseq-hydra-train."""
    return str(getattr(args, "arch", None) or getattr(args, "_name", ""))


def encoding_of(args: Any, side: str) -> str:
    """The name of the encoding in the encoder (side "source") or the decoder (side "target")."""
    own = getattr(args, f"{side}_position_encoding", None)
    if own is not None:
        return own
    # An encoding that has no causal form is replaced in the decoder.
    return (side == "target" and find_encoding(args.position_encoding).facts.in_decoder) or args.position_encoding


def input_positions_of(args: Any, side: str) -> str:
    """The input positions of this side: the user's choice, else the encoding's default."""
    return getattr(args, "input_positions", None) or find_encoding(encoding_of(args, side)).facts.input_positions


def typed_options(args: Any, encoding: str) -> dict[str, Any]:
    """The values that the user set for an encoding's flags.

    Flags that have no effect in combination with the others are left out: they may be meant for the other side.
    """
    cls = find_encoding(encoding)
    typed = {name: getattr(args, name, None) for name in flags_of(cls.options)}
    given = {name: value for name, value in typed.items() if value is not None}
    idle = cls.facts.idle_options(given)
    return {name: value for name, value in given.items() if name not in idle}


def overridden_options(args: Any, encoding: str) -> dict[str, Any]:
    """The values that --model-overrides sets for an encoding's options of test time."""
    names = (name for name, option in find_encoding(encoding).options.items() if option.at_test)
    return {name: getattr(args, name) for name in names if getattr(args, name, None) is not None}


def options_of(args: Any, encoding: str) -> dict[str, Any]:
    """The value of each flag of an encoding: the user's, else the default."""
    cls = find_encoding(encoding)
    defaults = default_options(cls)
    return {name: defaults[name] for name in flags_of(cls.options)} | typed_options(args, encoding)


def check_arguments(args: Namespace) -> None:
    """Refuses invalid combinations of flags before anything is built.

    Raises:
        FlagError: the message names the flag and the fix.
    """
    arch = arch_of(args)
    encodings = {side: encoding_of(args, side) for side in SIDES}
    described = " and ".join(dict.fromkeys(encodings.values()))
    used = {option for encoding in encodings.values() for option in typed_options(args, encoding)}
    typed = [option for option in flags_of(known_options()) if getattr(args, option, None) is not None]
    idle = {
        option: f" {reason}"
        for encoding in encodings.values()
        for option, reason in find_encoding(encoding).facts.idle_options(typed).items()
    }
    for option in typed:
        if option not in used:
            raise FlagError(
                f"{flag(option)} has no meaning for {arch} (encoding {described}){idle.get(option, '')}: leave it out."
            )
        if known_options()[option].in_decoder_only and option not in find_encoding(encodings["target"]).options:
            raise FlagError(
                f"{flag(option)} acts in a decoder only, and the decoder of {arch} has {encodings['target']}: leave it "
                "out."
            )
    at_test = {option for encoding in encodings.values() for option in overridden_options(args, encoding)}
    for option, meaning in known_options().items():
        if meaning.at_test and getattr(args, option, None) is not None and option not in at_test:
            raise FlagError(
                f"{option} in --model-overrides has no meaning for {arch} (encoding {described}): leave it out."
            )
    if find_encoding(encodings["target"]).facts.in_decoder is not None:
        raise FlagError(
            f"--target-position-encoding {encodings['target']} has no causal form for a decoder; use "
            f"{find_encoding(encodings['target']).facts.in_decoder} instead."
        )
    for key, value in input_flags(args).items():
        if getattr(args, key) != value:
            wanted = " and ".join(dict.fromkeys(input_positions_of(args, side) for side in SIDES))
            raise FlagError(
                f"{flag(key)} contradicts {arch}, whose input positions are: {wanted}; leave it out and set "
                "--input-positions instead."
            )
    if args.cross_attention_positions and args.no_cross_attention:
        raise FlagError("--cross-attention-positions has no meaning with --no-cross-attention: leave one of them out.")
    if args.cross_attention_positions and not find_encoding(encodings["target"]).facts.supports_cross_attention:
        supported = ", ".join(name for name, cls in ENCODINGS.items() if cls.facts.supports_cross_attention)
        raise FlagError(
            f"--cross-attention-positions: {encodings['target']} does not support cross-attention; the decoder's "
            f"encoding must be one of {supported}."
        )
    if args.num_segments is not None and args.segment_separator is None:
        raise FlagError(
            "--num-segments has no meaning without --segment-separator: set --segment-separator to the token that "
            "ends a segment, or leave --num-segments out."
        )
    if args.urpe and not any(supports_urpe(find_encoding(encoding)) for encoding in encodings.values()):
        raise FlagError(
            f"--urpe has no meaning for {arch} (encoding {described}), which adds no bias to the logits of single "
            "keys: leave it out."
        )
    if args.sinusoids is not None and "sinusoidal" not in {input_positions_of(args, side) for side in SIDES}:
        raise FlagError(
            f"--sinusoids has no meaning for {arch}, which adds no sinusoids to the embeddings: leave it out, or add "
            "--input-positions sinusoidal."
        )
    _check_augmentation(args)
    if getattr(args, "cross_self_attention", False):
        raise FlagError(
            "--cross-self-attention cannot be used: its keys are of two sentences, between which there is no distance."
        )
    for key in ("encoder_xformers_att_config", "decoder_xformers_att_config"):
        if getattr(args, key, None):
            raise FlagError(
                f"{flag(key)} cannot be used: xFormers attention does not support position encodings; leave it out."
            )


def _check_augmentation(args: Namespace) -> None:
    """Refuses a --position-augmentation that is undefined or has no effect, and flags of a mode that is not chosen.

    Raises:
        FlagError: the message names the flag and the fix.
    """
    mode = args.position_augmentation
    own = augmentation.DEFAULTS.get(mode, {})
    for name in augmentation.FLAGS:
        if name != "position_augmentation" and getattr(args, name) is not None and name not in own:
            modes = " or ".join(other for other, flags in augmentation.DEFAULTS.items() if name in flags)
            raise FlagError(f"{flag(name)} has no meaning without --position-augmentation {modes}: leave it out.")
    if mode is None:
        return
    encodings = {side: find_encoding(encoding_of(args, side)) for side in SIDES}
    effects = {cls: augmentation.effect(mode, cls, input_positions_of(args, side)) for side, cls in encodings.items()}
    effect = augmentation.combined(effects.values())
    if effect == augmentation.UNDEFINED:
        cls = next(cls for cls in effects if effects[cls] == effect)
        raise FlagError(
            f"--position-augmentation {mode} is not defined for {cls.name}: "
            f"{augmentation.undefined_because(cls)}; leave it out or use another encoding."
        )
    if effect == augmentation.NO_EFFECT:
        raise FlagError(
            f"--position-augmentation {mode} has no effect on {arch_of(args)}, which reads no absolute positions: "
            "leave it out, or add --input-positions sinusoidal."
        )
    if args.urpe and mode != "shift":
        raise FlagError(
            f"--position-augmentation {mode} cannot be used with --urpe, whose factors are of distances between "
            "tokens, not of their positions: leave one of them out."
        )
    if args.cross_attention_positions:
        raise FlagError(
            f"--position-augmentation {mode} cannot be used with --cross-attention-positions: the positions of source "
            "and target are drawn separately, so distances between them mean nothing; leave one of them out."
        )


def check_keys(args: Namespace, model: type[FairseqEncoderDecoderModel]) -> None:
    """Refuses unknown keys of fairseq-hydra-train's ``model`` group, which fairseq would silently ignore.

    Raises:
        FlagError: the message names the key.
    """
    parser = ArgumentParser()
    model.add_args(parser)
    preset = Namespace()
    ARCH_CONFIG_REGISTRY[args._name](preset)
    at_test = {name for name, option in known_options().items() if option.at_test}  # --model-overrides may set these
    known = {action.dest for action in parser._actions} | set(vars(preset)) | {"_name", "arch"} | at_test
    for key in vars(args):
        if key not in known:
            raise FlagError(f"model.{key} is not an option of {args._name}: fix its spelling or leave it out.")


def input_flags(args: Any) -> dict[str, bool]:
    """fairseq's flags that select the input positions."""
    source, target = (input_positions_of(args, side) for side in SIDES)
    return {
        "no_token_positional_embeddings": source == target == "none",
        "encoder_learned_pos": source == "learned",
        "decoder_learned_pos": target == "learned",
    }
