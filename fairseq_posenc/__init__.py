"""Position encodings for fairseq's Transformer. Importing it, as ``--user-dir`` does, registers everything."""

from . import architectures, guards, length_penalty
from .attention import attend
from .checkpoints import allow_checkpoint_types
from .encodings import build_encoding

allow_checkpoint_types()
guards.install()

__version__ = "0.1.0"
__all__ = ["architectures", "attend", "build_encoding", "length_penalty"]
