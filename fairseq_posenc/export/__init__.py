"""Trained models for serving: CTranslate2, which runs them on a CPU or GPU without PyTorch.

:func:`export` writes a model directory that was compared with fairseq before it got its name.
"""

import importlib.util

from .errors import ExportError

if importlib.util.find_spec("ctranslate2") is None:
    raise ImportError("CTranslate2 is not installed: pip install 'fairseq_posenc[export]'.")

from .directory import export
from .measuring import measure

__all__ = ["ExportError", "export", "measure"]
