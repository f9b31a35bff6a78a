"""Position encodings, one file per family.

``base.py`` defines their interface, ``options.py`` their options, ``registry.py`` finds and builds them by name, and
``shared/`` holds what several of them use. Installed packages add theirs by entry points of the group
``fairseq_posenc.encodings``.
"""

from importlib.metadata import entry_points

from ..errors import FlagError
from . import (  # noqa: F401 - each registers its encodings
    absolute,
    alibi,
    deberta,
    diet,
    fire,
    forget,
    gated_t5,
    huang,
    kerple,
    linformer,
    pope,
    relative_key,
    rotary,
    shaw,
    t5,
    transformer_xl,
    tupe,
)
from .contract.base import Facts, PositionEncoding
from .contract.registry import ENCODINGS, build_encoding, find_encoding, register_encoding

for _entry_point in entry_points(group="fairseq_posenc.encodings"):
    try:
        _entry_point.load()  # registers the encodings of an installed package
    except Exception as _error:
        _package = _entry_point.dist.name if _entry_point.dist else _entry_point.value
        raise FlagError(
            f"the encodings of the installed package {_package} cannot be loaded ({_error}): repair or uninstall it."
        ) from _error

__all__ = ["ENCODINGS", "Facts", "PositionEncoding", "build_encoding", "find_encoding", "register_encoding"]
