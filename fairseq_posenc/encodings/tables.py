"""How queries, keys and weights meet tables of vectors, without a (T, S, d) tensor."""

import torch
from torch import Tensor


def per_head(x: Tensor, tables: Tensor) -> Tensor:
    """x (B, H, T, m) times each head's own table (H, m, n), or one for all heads (1, m, n): (B, H, T, n).

    A plain ``x @ tables`` would copy the tables for each sentence of the batch.
    """
    tables = tables.to(x.dtype)
    if tables.size(0) == 1:
        return x @ tables[0]
    return torch.einsum("bhtm,hmn->bhtn", x, tables)


def take_distances(by_distance: Tensor, index: Tensor) -> Tensor:
    """From the logits of each query and row (B, H, T, rows) those of the rows at (T, S) that ``index`` names."""
    return by_distance.gather(-1, index.expand(*by_distance.shape[:2], -1, -1))
