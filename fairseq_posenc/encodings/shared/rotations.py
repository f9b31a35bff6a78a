"""Rotations by angles proportional to positions, as complex numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from ...positions import Positions


def at_positions(
    positions: Positions,
    new_keys: int,
    key: Hashable,
    make: Callable[[Tensor], Tensor],
    device: torch.device,
    query_shift: Tensor | int = 0,
) -> tuple[Tensor, Tensor]:
    """``make`` of the positions of the queries, (..., T, width), and of the last ``new_keys`` keys.

    Args:
        key: under which the values are cached.
        make: makes the values (..., n, width) of positions (..., n).
        query_shift: added to the positions of the queries in cross-attention, (B, 1).
    """
    if positions.is_cross_attention:
        for_queries = positions.cache.get(
            (key, "queries"), lambda: make(positions.query_positions + query_shift)[:, None]
        )
        if not new_keys:  # after the first step of a generation
            return for_queries, for_queries[..., :0, :]
        new = positions.keys - new_keys
        return for_queries, positions.cache.get((key, "keys"), lambda: make(positions.key_positions[:, new:])[:, None])
    if positions.given is not None:
        table = positions.cache.get(key, lambda: make(positions.key_positions)[:, None])  # (B, 1, S, width)
    else:
        # Logits depend on distances only, so column indices serve as positions even with padding.
        table = positions.cache.get_for_generation(
            key, max(positions.extent), lambda length: make(torch.arange(length, device=device))
        )
    for_queries = table[..., positions.first : positions.first + positions.queries, :]
    return for_queries, table[..., positions.keys - new_keys : positions.keys, :]


def rotations(positions: Tensor, frequencies: Tensor, precision: torch.dtype) -> Tensor:
    """Rotations by angles position times frequency, complex numbers of modulus 1, (..., n, frequencies).

    Computed in double precision, since single precision loses the angles of large positions.
    """
    angles = positions[..., None] * frequencies
    return torch.polar(torch.ones_like(angles), angles).to(precision.to_complex())


def as_complex(pairs: Tensor) -> Tensor:
    """Pairs (..., 2) as complex numbers (...), copied only if they are not in memory as complex numbers are."""
    if torch.compiler.is_compiling():  # its tensors may have other strides when the code runs
        return torch.view_as_complex(pairs.clone(memory_format=torch.contiguous_format))
    *strides, within_pair = pairs.stride()
    is_viewable = within_pair == 1 and not any(step % 2 for step in (*strides, pairs.storage_offset()))
    # Not contiguous(), which does not move what begins at an odd number.
    return torch.view_as_complex(pairs if is_viewable else pairs.clone(memory_format=torch.contiguous_format))
