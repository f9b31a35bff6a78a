"""Registers an ``--arch`` for each pair of an encoding and a size of fairseq's Transformer."""

from __future__ import annotations

from functools import partial
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY, register_model_architecture

from . import model  # noqa: F401 - registers the model of which these are architectures
from .arguments import input_flags, plugin_flags
from .encodings import ENCODINGS
from .encodings.contract.options import DEFAULT_NUM_SEGMENTS, parse_option

SIZES = (
    "tiny",
    "iwslt_de_en",
    "wmt_en_de",
    "vaswani_wmt_en_de_big",
    "vaswani_wmt_en_fr_big",
    "wmt_en_de_big",
    "wmt_en_de_big_t2t",
)


def architecture_name(encoding: str, size: str) -> str:
    """fairseq's architecture name with the encoding inserted: ``transformer_shaw_wmt_en_de``."""
    return f"transformer_{encoding}_{size}"


def _set_defaults(encoding: str, size: str, args: Any) -> None:
    """Sets the defaults. Idempotent: fairseq calls it on the parsed command line and on its configuration."""
    args.position_encoding = encoding
    # Encoding options that the user did not set stay None: encoder and decoder may have different defaults.
    for name, option in plugin_flags().items():
        value = getattr(args, name, None)
        setattr(args, name, None if value is None else parse_option(name, option, value))
    if args.segment_separator is not None and args.num_segments is None and not args.segment_shift:
        args.num_segments = DEFAULT_NUM_SEGMENTS
    if args.position_augmentation == "none":
        args.position_augmentation = None
    for name, value in input_flags(args).items():
        setattr(args, name, getattr(args, name, value))
    ARCH_CONFIG_REGISTRY[f"transformer_{size}"](args)


for _encoding in ENCODINGS:
    for _size in SIZES:
        register_model_architecture("transformer_posenc", architecture_name(_encoding, _size))(
            partial(_set_defaults, _encoding, _size)
        )
