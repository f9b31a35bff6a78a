"""Sums and products by the row of a table, beside PyTorch's gather and scatter."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from fairseq_posenc.encodings.shared import tables
from fairseq_posenc.encodings.shared.tables import sum_by_row, take_distances, weighted_sum
from fairseq_posenc.positions import Positions

#: (queries, keys, first query, left clip, right clip)
CASES = [
    *((7, 7, 0, *clips) for clips in ((2, 2), (3, 0), (0, 0), (6, 6), (20, 9))),
    *((1, 7, 6, 2, 2), (3, 9, 6, 2, 1), (3, 9, 6, 30, 30), (3, 20, 8, 2, 3), (2, 12, 0, 1, 1)),
]


def clipped_and_rows(queries, keys, first, left, right):
    """The clipped distances, and how many rows of a table they need."""
    clipped = Positions(queries, keys, first=first).clipped(left, right)
    return clipped, clipped.rows.stop - clipped.rows.start


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_sums_by_row_are_those_of_a_scatter(case, dtype):
    clipped, rows = clipped_and_rows(*case)
    x = torch.rand(2, 3, *case[:2]).to(dtype).transpose(0, 1).contiguous().transpose(0, 1)
    expected = torch.zeros(2, 3, case[0], rows, dtype=torch.float64)
    expected.scatter_add_(-1, clipped.indices.expand(2, 3, -1, -1), x.double())
    sums = sum_by_row(x, rows, clipped.start).permute(2, 0, 1, 3)
    assert sums.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(sums.double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("many", [0, 1 << 18])
def test_gradients_of_products_by_row(monkeypatch, case, many):
    """Of the first and of the second order."""
    monkeypatch.setattr(tables, "MANY_LOGITS", many)
    clipped, rows = clipped_and_rows(*case)
    by_row, weights, table = (
        torch.randn(shape, dtype=torch.float64, requires_grad=True)
        for shape in ((2, 2, case[0], rows), (2, 2, *case[:2]), (2, rows, 3))
    )
    for function, inputs in (
        (lambda x: take_distances(x, clipped), (by_row,)),
        (lambda x, y: weighted_sum(x, y, clipped), (weights, table)),
    ):
        assert gradcheck(function, inputs)
        assert gradgradcheck(function, inputs)
