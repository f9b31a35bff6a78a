"""Position encodings: the contract, the registry, and one file a family."""

from . import (
    absolute,
    alibi,
    deberta,
    diet,
    huang,
    kerple,
    linformer,
    relative_key,
    rotary,
    shaw,
    t5,
    transformer_xl,
    tupe,
)
from .base import ENCODINGS, PositionEncoding, build_encoding, register_encoding

__all__ = [
    "ENCODINGS",
    "PositionEncoding",
    "absolute",
    "alibi",
    "build_encoding",
    "deberta",
    "diet",
    "huang",
    "kerple",
    "linformer",
    "register_encoding",
    "relative_key",
    "rotary",
    "shaw",
    "t5",
    "transformer_xl",
    "tupe",
]
