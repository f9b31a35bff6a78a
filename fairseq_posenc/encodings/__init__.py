"""Position encodings, one file a family.

``base.py`` is their contract; ``options.py`` and ``registry.py`` are how users name and build them; ``shared/`` is what
several of them have in common.
"""

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
from .base import PositionEncoding
from .registry import ENCODINGS, build_encoding, find_encoding, register_encoding

__all__ = ["ENCODINGS", "PositionEncoding", "build_encoding", "find_encoding", "register_encoding"]
