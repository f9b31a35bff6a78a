"""Position encodings: the contract, the registry, and one file a family."""

from . import (  # noqa: F401 - each registers its encodings
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

__all__ = ["ENCODINGS", "PositionEncoding", "build_encoding", "register_encoding"]
