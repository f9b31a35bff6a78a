"""Position encodings: the contract, the registry, and one file a family."""

from . import absolute, diet, shaw
from .base import ENCODINGS, PositionEncoding, build_encoding, register_encoding

__all__ = ["ENCODINGS", "PositionEncoding", "absolute", "build_encoding", "diet", "register_encoding", "shaw"]
