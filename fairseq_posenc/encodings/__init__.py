"""Position encodings, one file per family; each file of this folder is imported and registers its encodings.

``contract/`` defines their interface and options, finds and builds them by name, and ``shared/`` holds what several of
them use. Installed packages add theirs by entry points of the group ``fairseq_posenc.encodings``.
"""

from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules

from ..errors import FlagError
from .contract.base import Facts, PositionEncoding
from .contract.registry import ENCODINGS, build_encoding, find_encoding, register_encoding

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

for _entry_point in entry_points(group="fairseq_posenc.encodings"):
    try:
        _entry_point.load()  # registers the encodings of an installed package
    except Exception as _error:
        _package = _entry_point.dist.name if _entry_point.dist else _entry_point.value
        raise FlagError(
            f"the encodings of the installed package {_package} cannot be loaded ({_error}): repair or uninstall it."
        ) from _error

__all__ = ["ENCODINGS", "Facts", "PositionEncoding", "build_encoding", "find_encoding", "register_encoding"]
