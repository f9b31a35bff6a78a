"""The precision of intermediate values."""

import torch


def at_least_single(dtype: torch.dtype) -> torch.dtype:
    """Single precision instead of half; other types stay."""
    return torch.float32 if dtype.itemsize < 4 else dtype
