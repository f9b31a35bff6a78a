"""The flags of this package's architectures: their definitions, their values for each stack, and validation."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY, FairseqEncoderDecoderModel

from .attention.backends import BACKENDS
from .augmentation import choice as augmentation
from .encodings import ENCODINGS, find_encoding
from .encodings.contract.options import (
    BIAS_GAIN,
    NUM_SEGMENTS,
    URPE,
    Option,
    flag,
    flags_of,
    parse_bool,
    positive,
    whole,
)
from .encodings.contract.registry import Choice, default_options, known_options, parse_choices, supports_urpe
from .errors import FlagError

SIDES = ("source", "target")
#: where attention takes positions: in the encoder, in the decoder, and from the decoder to the encoder
PLACES = (*SIDES, "cross")
INPUT_POSITIONS = ("none", "sinusoidal", "learned")
MODEL_FLAGS = {
    "input_positions": Option(
        str,
        "position vectors added to the embeddings of encoder and decoder, in addition to an encoding in attention; by "
        "default those of the encoding",
        INPUT_POSITIONS,
    ),
    "input_positions_from": Option(
        str,
        "initial values of learned input positions: sinusoidal, or a file (.npy or .pt) of a matrix whose row p is the "
        "vector of position p, from 0; read when a training starts, never when a checkpoint is loaded to translate",
    ),
    "sinusoids": Option(
        str,
        "which sinusoids are added to the embeddings: fairseq's (the default) or the paper's, with sine and cosine in "
        "turn, wavelengths of 10000^(2i/d), and positions from 0",
        ("fairseq", "paper"),
    ),
    "source_position_encoding": Option(
        str,
        "the encoder's encoding, by default the architecture's: a name, or a name for each layer, joined by commas; "
        "each may be followed by options of its own, as in shaw:clipping_distance=8",
    ),
    "target_position_encoding": Option(str, "the decoder's encoding, by default the architecture's; written alike"),
    "cross_position_encoding": Option(
        str, "the encoding between source and target (cross-attention), by default none; written alike"
    ),
    "cross_attention_positions": Option(
        parse_bool, "use the decoder's encoding between source and target too, true or false (the default)"
    ),
    "segment_separator": Option(
        str, "token that ends a segment; the segment of a token is the number of separators before it"
    ),
    "num_segments": NUM_SEGMENTS,
    "segment_shift": Option(
        whole(0), "positions are higher by this much after each --segment-separator; 0 (the default) leaves them"
    ),
    "length_encoding": Option(
        str,
        "sinusoids of the target's length, added to the decoder's input: of the tokens that are left (difference), or "
        "of the position with wavelengths up to the length (ratio); none by default",
        ("difference", "ratio"),
    ),
    "length_ratio": Option(
        positive, "tokens of a translation per token of its source that --length-encoding asks for, 1 by default"
    ),
    "bias_gain": BIAS_GAIN,
    "urpe": URPE,
    "attention_backend": Option(
        str,
        "how attention is computed; the result is the same, time and memory differ: auto (the default) chooses "
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


#: fairseq's flags that cannot be used with positions in attention, and why
IMPOSSIBLE = {
    "cross_self_attention": "its keys are of two sentences, between which there is no distance",
    "encoder_xformers_att_config": "xFormers attention does not support position encodings",
    "decoder_xformers_att_config": "xFormers attention does not support position encodings",
}


def plugin_flags() -> dict[str, Option]:
    """The flags that this package adds to fairseq's: those of the model and of every encoding."""
    return MODEL_FLAGS | flags_of(known_options())


def add_flags(parser: ArgumentParser) -> None:
    """Adds this package's flags to the parser."""
    for name, option in plugin_flags().items():
        # Architectures parse the values, in configurations too.
        parser.add_argument(flag(name), choices=option.choices, help=option.help)


def arch_of(args: Any) -> str:
    """The architecture's name, from the arguments of fairseq-train or of fairseq-hydra-train."""
    return str(getattr(args, "arch", None) or getattr(args, "_name", ""))


def encodings_at(args: Any, place: str) -> tuple[Choice, ...]:
    """The encodings of a place: one for all its layers, or one for each; none between source and target by default.

    Raises:
        FlagError: names the flag in which an encoding or option is unknown, or a value invalid.
    """
    name = f"{place}_position_encoding"
    own = getattr(args, name, None)
    if own is not None:
        try:
            return parse_choices(own)
        except FlagError as error:
            raise FlagError(f"{flag(name)}: {error}") from None
    if place == "cross":
        return encodings_at(args, "target") if getattr(args, "cross_attention_positions", None) else ()
    # An encoding that has no causal form is replaced in the decoder.
    in_decoder = find_encoding(args.position_encoding).facts.in_decoder if place == "target" else None
    return (Choice(in_decoder or args.position_encoding),)


def input_positions_of(args: Any, side: str) -> str:
    """The input positions of this side: the user's choice, else those of its encodings."""
    chosen = getattr(args, "input_positions", None)
    return chosen or next(iter(_input_kinds(encodings_at(args, side))), "none")


def _input_kinds(choices: Iterable[Choice]) -> set[str]:
    """What encodings add to the embeddings."""
    kinds: set[str] = {choice.cls.facts.input_positions for choice in choices}
    return kinds - {"none"}


def stack_of(place: str) -> str:
    """The stack whose layers have this place."""
    return "encoder" if place == "source" else "decoder"


def longest_at(args: Any, place: str) -> int | None:
    """The most positions that a sentence at this place can have; None if the arguments do not say it."""
    sides = SIDES if place == "cross" else (place,)
    lengths = [getattr(args, f"max_{side}_positions", None) for side in sides]
    return max((length for length in lengths if length is not None), default=None)


def typed_options(args: Any, choice: Choice, place: str) -> dict[str, Any]:
    """The values that the user set for an encoding's options: flags, those of the choice, and options of test time.

    Flags that have no effect in combination with the others, or at this place, are left out: they may be meant for
    another place.
    """
    options = {
        name: option
        for name, option in choice.cls.options.items()
        if place == "cross" or not option.in_cross_attention_only
    }
    values = {name: getattr(args, name) for name in _given(args, options)} | dict(choice.options)
    idle = choice.cls.facts.idle_options(values)
    return {name: value for name, value in values.items() if name not in idle or name in dict(choice.options)}


def layers_at(args: Any, place: str) -> tuple[Choice, ...]:
    """The encodings of a place, each with all options that are not at their defaults; one if all layers are alike."""
    choices = []
    for choice in encodings_at(args, place):
        typed, defaults = typed_options(args, choice, place), default_options(choice.cls)
        options = sorted((name, value) for name, value in typed.items() if value != defaults[name])
        choices.append(Choice(choice.name, tuple(options)))
    return tuple(choices[:1] if len(set(choices)) == 1 else choices)


def _given(args: Any, options: dict[str, Option]) -> dict[str, Option]:
    """Those of the options that the user set."""
    settable = {name: option for name, option in options.items() if option.is_flag or option.at_test}
    return {name: option for name, option in settable.items() if getattr(args, name, None) is not None}


def check_arguments(args: Namespace) -> None:
    """Refuses invalid combinations of flags before anything is built.

    Raises:
        FlagError: the message names the flag and the fix.
    """
    arch = arch_of(args)
    places = {place: encodings_at(args, place) for place in PLACES}
    classes = [choice.cls for choices in places.values() for choice in choices]
    described = " and ".join(dict.fromkeys(cls.name for cls in classes))
    _check_places(args, places)
    used, own = set[str](), set[str]()
    for place, choices in places.items():
        for choice in choices:
            used |= typed_options(args, choice, place).keys() - dict(choice.options).keys()
            own |= dict(choice.options).keys()
    typed = _given(args, known_options())
    idle = {name: f" {reason}" for cls in classes for name, reason in cls.facts.idle_options(list(typed)).items()}
    idle |= dict.fromkeys(own, ", whose layers have values of their own")
    for name, option in typed.items():
        if name not in used:
            given = flag(name) if option.is_flag else f"{name} in --model-overrides"
            raise FlagError(
                f"{given} has no meaning for {arch} (encoding {described}){idle.get(name, '')}: leave it out."
            )
        if option.in_decoder_only and not any(name in choice.cls.options for choice in places["target"]):
            in_decoder = " and ".join(choice.name for choice in places["target"])
            raise FlagError(
                f"{flag(name)} acts in a decoder only, and the decoder of {arch} has {in_decoder}: leave it out."
            )
    for key, value in input_flags(args).items():
        if getattr(args, key) != value:
            wanted = " and ".join(dict.fromkeys(input_positions_of(args, side) for side in SIDES))
            raise FlagError(
                f"{flag(key)} contradicts {arch}, whose input positions are: {wanted}; leave it out and set "
                "--input-positions instead."
            )
    at_input = {input_positions_of(args, side) for side in SIDES}
    adds_sinusoids = "sinusoidal" in (*at_input, args.input_positions_from)
    read = {choice.cls.facts.reads for side in SIDES for choice in places[side]}
    reads_positions = at_input != {"none"} or not read.isdisjoint({"integers", "reals", "differences"})
    multiplies_weights = any(map(supports_urpe, classes))
    for name, without, reason in (
        ("cross_attention_positions", args.no_cross_attention, "with --no-cross-attention"),
        ("cross_position_encoding", args.no_cross_attention, "with --no-cross-attention"),
        ("num_segments", args.segment_separator is None, "without --segment-separator"),
        ("segment_shift", args.segment_separator is None, "without --segment-separator"),
        ("segment_shift", not reads_positions, f"for {arch}, which reads no positions (--input-positions adds some)"),
        ("length_encoding", input_positions_of(args, "target") != "sinusoidal", "without sinusoids in the decoder"),
        ("length_ratio", args.length_encoding is None, "without --length-encoding"),
        ("urpe", not multiplies_weights, f"for {arch} ({described}), which adds no bias to the logits of single keys"),
        ("input_positions_from", "learned" not in at_input, f"for {arch} without --input-positions learned"),
        ("sinusoids", not adds_sinusoids, f"for {arch} without --input-positions sinusoidal"),
    ):
        if getattr(args, name) and without:
            raise FlagError(f"{flag(name)} has no meaning {reason}: leave it out.")
    _check_augmentation(args)
    for key, reason in IMPOSSIBLE.items():
        if getattr(args, key, None):
            raise FlagError(f"{flag(key)} cannot be used: {reason}; leave it out.")


def _check_places(args: Namespace, places: dict[str, tuple[Choice, ...]]) -> None:
    """Refuses encodings that are not defined at their place, or are not as many as the layers.

    Raises:
        FlagError: the message names the flag and the fix.
    """
    if args.cross_position_encoding is not None and args.cross_attention_positions:
        raise FlagError(
            "--cross-attention-positions true and --cross-position-encoding contradict each other: leave one of them "
            "out."
        )
    for place, choices in places.items():
        typed, stack = flag(f"{place}_position_encoding"), stack_of(place)
        repeats_target = place == "cross" and args.cross_attention_positions
        layers = getattr(args, f"{stack}_layers")
        if len(choices) not in (0, 1, layers):
            raise FlagError(
                f"{typed} names {len(choices)} encodings, but the {stack} has {layers} layers: name one for "
                "all of them, or as many."
            )
        if len(choices) > 1 and getattr(args, f"{stack}_layers_to_keep", None):
            raise FlagError(
                f"--{stack}-layers-to-keep cannot be used with {typed} for each layer: name one encoding for all "
                "layers, and train again."
            )
        kinds = _input_kinds(choices)
        if len(kinds) > 1:
            raise FlagError(f"{typed}: the embeddings get one kind of position, not {' and '.join(sorted(kinds))}.")
        for choice in choices:
            facts = choice.cls.facts
            if place == "target" and facts.in_decoder is not None:
                raise FlagError(
                    f"{typed} {choice.name} has no causal form for a decoder; use {facts.in_decoder} instead."
                )
            is_left_out = choice.name == "nopos" and len({other.name for other in choices}) > 1
            if place == "cross" and not facts.supports_cross_attention and not is_left_out:
                typed = "--cross-attention-positions" if repeats_target else typed
                usable = ", ".join(name for name, cls in ENCODINGS.items() if cls.facts.supports_cross_attention)
                raise FlagError(
                    f"{typed}: {choice.name} cannot be used between source and target; use one of {usable}."
                )
            for name in () if repeats_target else dict(choice.options):
                option = choice.cls.options[name]
                acts_elsewhere = (option.in_cross_attention_only and place != "cross") or (
                    option.in_decoder_only and place != "target"
                )
                if acts_elsewhere:
                    raise FlagError(f"{typed} {choice.name}: {name} has no effect at this place; leave it out.")


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
    cross = "--cross-attention-positions" if args.cross_attention_positions else "--cross-position-encoding"
    if args.segment_shift and (mode or encodings_at(args, "cross")):
        other = f"--position-augmentation {mode}" if mode else cross
        raise FlagError(f"--segment-shift cannot be used with {other}, which has other positions: leave one out.")
    if mode is None:
        return
    effect = augmentation.combined(
        [
            augmentation.effect(mode, choice.cls, input_positions_of(args, side))
            for side in SIDES
            for choice in encodings_at(args, side)
        ]
    )
    if effect != augmentation.WORKS:
        raise FlagError(
            f"--position-augmentation {mode} {effect} {arch_of(args)}: leave it out, or use an encoding or "
            "--input-positions that read such positions."
        )
    if encodings_at(args, "cross") or (args.urpe and mode != "shift"):
        other, reason = "--urpe", "which reads distances between tokens, not their positions"
        if encodings_at(args, "cross"):
            other, reason = cross, "since positions of source and target are drawn separately"
        raise FlagError(f"--position-augmentation {mode} cannot be used with {other}, {reason}: leave one of them out.")


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
    if unknown := ", ".join(sorted(vars(args).keys() - known)):
        raise FlagError(f"model.{unknown}: {args._name} has no such option; fix its spelling or leave it out.")


def input_flags(args: Any) -> dict[str, bool]:
    """fairseq's flags that select the input positions."""
    source, target = (input_positions_of(args, side) for side in SIDES)
    return {
        "no_token_positional_embeddings": source == target == "none",
        "encoder_learned_pos": source == "learned",
        "decoder_learned_pos": target == "learned",
    }
