"""Checkpoints that can be trusted: loading without running code, and averaging in little memory.

Nothing here ever switches `weights_only` off; which types a file may hold is said in `allowed`.
"""

from .allowed import allow_checkpoint_types
from .averaging import average_checkpoints
from .loading import CheckpointError, load_checkpoint
from .selection import last_epoch_checkpoints, last_update_checkpoints

__all__ = [
    "CheckpointError",
    "allow_checkpoint_types",
    "average_checkpoints",
    "last_epoch_checkpoints",
    "last_update_checkpoints",
    "load_checkpoint",
]
