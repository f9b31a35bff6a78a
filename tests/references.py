"""Naive references: each encoding's equation as in its paper, one pair of query and key at a time, in float64.

A reference is a function ``(encoding, head, i, j, q, k, v) -> (logit, value)`` for query i and key j, both counted from
the start of the keys; q, k, v are the vectors of that pair, q not yet scaled; value is what the weight multiplies.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Reference = Callable[..., tuple[float, np.ndarray]]
REFERENCES: dict[str, Reference] = {}


def reference_for(*names: str) -> Callable[[Reference], Reference]:
    def register(function: Reference) -> Reference:
        for name in names:
            REFERENCES[name] = function
        return function

    return register


def row(table: Any, head: int, distance: int, clip: int) -> np.ndarray:
    """The table's entry of a distance, clipped; a table with one row of heads serves them all."""
    values = table.detach().numpy()
    return values[head if len(values) > 1 else 0][max(-clip, min(clip, distance)) + clip]


@reference_for("nopos", "sinusoidal", "learned")
def plain(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> tuple[float, np.ndarray]:
    return q @ k / math.sqrt(len(q)), v


@reference_for("shaw")
def shaw(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> tuple[float, np.ndarray]:
    clip = encoding.clipping_distance
    if encoding.relative_keys is not None:
        k = k + row(encoding.relative_keys, head, j - i, clip)
    if encoding.relative_values is not None:
        v = v + row(encoding.relative_values, head, j - i, clip)
    return q @ k / math.sqrt(len(q)), v


@reference_for("diet_rel")
def diet_rel(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> tuple[float, np.ndarray]:
    return q @ k / math.sqrt(len(q)) + row(encoding.relative_bias, head, j - i, encoding.clipping_distance), v


def naive_attention(encoding: Any, q: Any, k: Any, v: Any, forbidden: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Output (B, H, T, d) and weights (B, H, T, S), by loops; forbidden (B, T, S), True = may not attend."""
    q, k, v = (x.detach().numpy() for x in (q, k, v))
    reference = REFERENCES[encoding.name]
    (batch, heads, queries, dim), keys = q.shape, k.shape[2]
    output, weights = np.zeros((batch, heads, queries, dim)), np.zeros((batch, heads, queries, keys))
    for b in range(batch):
        for h in range(heads):
            for t in range(queries):
                allowed = [j for j in range(keys) if forbidden is None or not forbidden[b, t, j]]
                i = keys - queries + t
                pairs = [reference(encoding, h, i, j, q[b, h, t], k[b, h, j], v[b, h, j]) for j in allowed]
                highest = max(logit for logit, _ in pairs)
                total = sum(math.exp(logit - highest) for logit, _ in pairs)
                for j, (logit, value) in zip(allowed, pairs, strict=True):
                    weights[b, h, t, j] = math.exp(logit - highest) / total
                    output[b, h, t] += weights[b, h, t, j] * value
    return output, weights
