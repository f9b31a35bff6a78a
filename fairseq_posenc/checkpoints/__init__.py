"""Checkpoints that can be trusted: loading without running code, and averaging in little memory.

Nothing here ever switches `weights_only` off; which types a file may hold is said in `allowed`.
"""

from ..errors import CheckpointError
from .allowed import allow_checkpoint_types, ignore_unsafe_switch
from .averaging import average_checkpoints
from .checking import check_complete, check_finite
from .loading import load_checkpoint
from .selection import last_epoch_checkpoints, last_update_checkpoints

__all__ = [
    "CheckpointError",
    "allow_checkpoint_types",
    "average_checkpoints",
    "check_complete",
    "check_finite",
    "ignore_unsafe_switch",
    "last_epoch_checkpoints",
    "last_update_checkpoints",
    "load_checkpoint",
]
