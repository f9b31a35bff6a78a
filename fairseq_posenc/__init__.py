"""Position encodings for fairseq's Transformer, and for any model of PyTorch.

Importing the package, as ``--user-dir`` does, registers its architectures and its task, and patches fairseq's modules.
Without fairseq, :func:`build_encoding` and :func:`attend` need PyTorch only.
"""

from .compat import HAS_FAIRSEQ  # isort: split

from .attention.core import attend
from .encodings import build_encoding

if HAS_FAIRSEQ:
    from . import architectures, length_penalty, patches  # noqa: F401

    patches.install()

__version__ = "0.3.0"
#: The version of the computation, part of an experiment's identity. Raise it by hand, and only when a change alters the
#: results of trainings. The initial values of an encoding have their own version, ``initial_values``.
COMPUTATION = 1
__all__ = ["COMPUTATION", "attend", "build_encoding"]
