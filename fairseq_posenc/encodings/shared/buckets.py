"""Logarithmic buckets of distances."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...errors import FlagError


def log_buckets(num_buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """T5's bucket of each distance from -max_distance to max_distance, (2 max_distance + 1,), int64.

    Half of the buckets hold one distance each, the others are logarithmic; distances beyond max_distance share the last
    bucket. If ``bidirectional``, the first half of all buckets is for keys at or before the query, the second half for
    later keys. Otherwise later keys are in bucket 0, and a causal mask must hide them. The logarithm is computed in
    single precision, as in the authors' code.

    Raises:
        FlagError: there are too few buckets, or max_distance leaves no distance for the logarithmic ones.
    """
    per_side = num_buckets // 2 if bidirectional else num_buckets
    exact = per_side // 2
    if exact < 1 or (bidirectional and num_buckets % 2):
        needed = "even and at least 4" if bidirectional else "at least 2"
        raise FlagError(f"--num-buckets must be {needed}, not {num_buckets}.")
    if max_distance <= exact:
        raise FlagError(
            f"--max-distance must be more than {exact}, not {max_distance}: of {num_buckets} buckets the first {exact} "
            "of a direction hold one distance each."
        )
    distances = torch.arange(-max_distance, max_distance + 1)
    back = distances.abs() if bidirectional else (-distances).clamp(min=0)
    ratio = torch.log(back.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + (ratio * (per_side - exact)).long()).clamp(max=per_side - 1)
    side = per_side * (distances > 0).long() if bidirectional else 0
    return side + torch.where(back < exact, back, far)


def signed_log_buckets(position_buckets: int, max_distance: int) -> list[int]:
    """DeBERTa-v2's bucket of each distance from -(max_distance - 1) to max_distance - 1, ascending.

    Each direction has its own buckets, negative ones to the left. Distances up to position_buckets // 2 are their own
    buckets; the others are logarithmic, up to bucket position_buckets - 1, or position_buckets - 2 if position_buckets
    is odd. Larger distances share the last bucket. The logarithm is computed in single precision and rounded up, as in
    the authors' code, so rounding may put the last distance one bucket further.

    Raises:
        FlagError: there are too few buckets, or max_distance leaves no distance for the logarithmic ones.
    """
    if position_buckets < 4:
        raise FlagError(f"--position-buckets must be at least 4, not {position_buckets}.")
    exact = position_buckets // 2
    if max_distance < exact + 2:
        raise FlagError(
            f"--max-distance must be more than {exact + 1}, not {max_distance}: with --position-buckets "
            f"{position_buckets} each distance up to {exact} has its own bucket."
        )
    distances = torch.arange(1 - max_distance, max_distance, device="cpu")
    ratio = torch.log(distances.abs().clamp(min=exact) / exact) / math.log((max_distance - 1) / exact)
    far = torch.ceil(ratio * (exact - 1)).long() + exact
    return torch.where(distances.abs() <= exact, distances, distances.sign() * far).tolist()


def by_clamped_distance(table: Tensor, distances: Tensor) -> Tensor:
    """Indexes a table (2m + 1,) of the distances from -m to m; larger distances are clamped."""
    furthest = len(table) // 2
    return table[distances.clamp(-furthest, furthest) + furthest]
