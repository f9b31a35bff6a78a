"""Buckets of distances, which grow with the logarithm of the distance."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...errors import FlagError


def log_buckets(num_buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """T5's bucket of each distance from -max_distance to max_distance, (2 max_distance + 1,), int64; distances beyond
    share the bucket of the last.

    Half of the buckets hold one distance each, the others grow with its logarithm. Bidirectional: the first half of
    all buckets is for keys at or before the query, the second for keys after it. One-sided: keys after the query fall
    into bucket 0, which a causal mask hides. The logarithm is taken in single precision, as in the authors' code.

    Raises:
        ValueError: too few buckets, or a max_distance that leaves none to the logarithm.
    """
    distances = torch.arange(-max_distance, max_distance + 1)
    per_side = num_buckets // 2 if bidirectional else num_buckets
    exact = per_side // 2
    if exact < 1 or (bidirectional and num_buckets % 2):
        needed = "even and at least 4" if bidirectional else "at least 2"
        raise FlagError(f"--num-buckets must be {needed}, not {num_buckets}.")
    if max_distance <= exact:
        raise FlagError(
            f"--max-distance must be more than {exact}, the distances that {num_buckets} buckets hold singly, "
            f"not {max_distance}."
        )
    back = distances.abs() if bidirectional else (-distances).clamp(min=0)
    ratio = torch.log(back.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + (ratio * (per_side - exact)).long()).clamp(max=per_side - 1)
    side = per_side * (distances > 0).long() if bidirectional else 0
    return side + torch.where(back < exact, back, far)


def signed_log_buckets(position_buckets: int, max_distance: int) -> list[int]:
    """DeBERTa-v2's bucket of each distance from -(max_distance - 1) to max_distance - 1, ascending; distances beyond
    share the bucket of the last.

    Each direction has its own buckets, negative to the left. Distances up to position_buckets // 2 are their own
    buckets, the others grow with the logarithm up to position_buckets - 1 (- 2 where that number is odd). The logarithm
    is taken in single precision and rounded up, as in the authors' code, where the last distance may so come one
    bucket further.

    Raises:
        ValueError: too few buckets, or a max_distance that leaves none to the logarithm.
    """
    if position_buckets < 4:
        raise FlagError(f"--position-buckets must be at least 4, not {position_buckets}.")
    exact = position_buckets // 2
    if max_distance < exact + 2:
        raise FlagError(
            f"--max-distance must be more than {exact + 1}, not {max_distance}: --position-buckets {position_buckets} "
            f"hold the distances up to {exact} singly."
        )
    distances = torch.arange(1 - max_distance, max_distance, device="cpu")
    ratio = torch.log(distances.abs().clamp(min=exact) / exact) / math.log((max_distance - 1) / exact)
    far = torch.ceil(ratio * (exact - 1)).long() + exact
    return torch.where(distances.abs() <= exact, distances, distances.sign() * far).tolist()


def clamped(table: Tensor, distances: Tensor) -> Tensor:
    """Entries of a 1-dimensional table of the distances from -m to m, of the shape of ``distances``; those beyond m
    share the last.
    """
    furthest = len(table) // 2
    return table[distances.clamp(-furthest, furthest) + furthest]
