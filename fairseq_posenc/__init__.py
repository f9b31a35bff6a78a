"""Position encodings for fairseq's Transformer.

Importing the package, as ``--user-dir`` does, registers its architectures and its task, and patches fairseq's modules.
"""

from . import architectures, length_penalty, patches
from .attention.core import attend
from .encodings import build_encoding

patches.install()

__version__ = "0.2.0"
#: The version of the computation, part of an experiment's identity. Raise it by hand, and only when a change alters the
#: results of trainings. The initial values of an encoding have their own version, ``initial_values``.
COMPUTATION = 1
__all__ = ["COMPUTATION", "architectures", "attend", "build_encoding", "length_penalty"]
