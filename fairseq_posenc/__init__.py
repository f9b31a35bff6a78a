"""Position encodings for fairseq's Transformer.

Importing the package, as ``--user-dir`` does, registers its architectures and its task, and patches fairseq.
"""

from . import architectures, length_penalty, patches
from .attention.core import attend
from .checkpoints import allow_checkpoint_types, ignore_unsafe_switch
from .encodings import build_encoding
from .errors import hide_tracebacks

ignore_unsafe_switch()
allow_checkpoint_types()
patches.install()
hide_tracebacks()

__version__ = "0.2.0"
#: The version of the computation, part of an experiment's identity. Raise it by hand, and only when a change alters the
#: results of trainings. The initial values of an encoding have their own version, ``initial_values``.
COMPUTATION = 1
__all__ = ["COMPUTATION", "architectures", "attend", "build_encoding", "length_penalty"]
