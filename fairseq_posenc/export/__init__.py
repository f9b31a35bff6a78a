"""Exports trained models to CTranslate2, which serves them on a CPU or GPU without PyTorch.

:func:`export` compares the model with fairseq before it writes the output directory.
"""

import importlib.util

from ..errors import ExportError

if importlib.util.find_spec("ctranslate2") is None:
    raise ExportError("CTranslate2 is not installed: run pip install '.[export]' in the repository.")

from .directory import export

__all__ = ["ExportError", "export"]
