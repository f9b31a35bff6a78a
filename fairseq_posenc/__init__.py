"""Position encodings for fairseq's Transformer. Importing it, as ``--user-dir`` does, registers everything."""

from . import architectures, length_penalty, patches
from .attention.core import attend
from .checkpoints import allow_checkpoint_types, ignore_unsafe_switch
from .encodings import build_encoding
from .errors import show_sentences

ignore_unsafe_switch()
allow_checkpoint_types()
patches.install()
show_sentences()

__version__ = "0.2.0"
#: The version of what is computed, part of what tells experiments apart: raise it, by hand, only when a change alters
#: the results of trainings. An encoding's initial values have a version of their own, ``initial_values``.
COMPUTATION = 1
__all__ = ["COMPUTATION", "architectures", "attend", "build_encoding", "length_penalty"]
