"""Loads checkpoints without running code from them, and averages them in the memory of two models.

All loading uses ``weights_only=True``, which is safe from torch 2.10 on; :mod:`.allowed` lists the types that a file
may contain.
"""

from ..errors import CheckpointError
from .averaging import average_checkpoints
from .loading import check_finite, load_checkpoint
from .selection import last_checkpoints

__all__ = ["CheckpointError", "average_checkpoints", "check_finite", "last_checkpoints", "load_checkpoint"]
