"""Distances, segments and positions match their definitions."""

import pytest
import torch

from fairseq_posenc.encodings.transformer_xl import relative_sinusoids
from fairseq_posenc.positions import CrossPositions, Positions, absolute_positions, relative_distances


def test_distance_is_key_minus_query_with_queries_at_the_end():
    assert relative_distances(3, 3).tolist() == [[0, 1, 2], [-1, 0, 1], [-2, -1, 0]]
    assert relative_distances(1, 4).tolist() == [[-3, -2, -1, 0]]


def test_absolute_positions_count_real_tokens_only():
    left = torch.tensor([[True, True, False, False, False], [False] * 5])
    assert absolute_positions(left).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]
    assert absolute_positions(left.flip(1)).tolist() == [[0, 1, 2, 0, 0], [0, 1, 2, 3, 4]]


def test_positions_are_columns_unless_padding_is_on_the_left():
    mask = torch.tensor([[True, True, False, False, False], [False] * 5])
    left, right = Positions(2, 5, mask), Positions(2, 5, mask.flip(1))
    assert left.key_positions.tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]
    assert left.query_positions.tolist() == [[1, 2], [3, 4]]
    assert right.key_positions.tolist() == Positions(1, 5).key_positions.tolist() == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("left", [0, 1, 5, 100])
@pytest.mark.parametrize("right", [0, 2, 100])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 6), (4, 4), (2, 5)])
def test_clipped_index_reads_the_row_of_each_clipped_distance(left, right, queries, keys):
    table = torch.arange(-left, right + 1)  # row t holds its own distance
    rows, index, _ = Positions(queries, keys).clipped(left, right)
    assert torch.equal(table[rows][index], relative_distances(queries, keys).clamp(-left, right))
    assert len(table[rows]) <= min(left + right, queries + keys - 2) + 1


def test_values_by_distance_and_by_pair_are_indexed_by_position():
    """Within one sentence, and in cross-attention with left padding of source, target or both."""
    source = torch.tensor([[True, True, False, False], [False, False, False, False]])
    target = torch.tensor([[True, False, False], [False, False, False]])
    for positions in (
        Positions(2, 4),
        Positions(2, 4, source),
        CrossPositions(Positions(2, 3, target), source),
        CrossPositions(Positions(2, 3, target), source.flip(1)),
        CrossPositions(Positions(1, 3, target.flip(1)), source.flip(1)),
        CrossPositions(Positions(1, 3), source),
    ):
        queries, keys = positions.extent
        i = positions.query_positions.expand(2, -1)[:, :, None]
        j = positions.key_positions.expand(2, -1)[:, None, :]
        matrix = 100 * torch.arange(queries)[:, None] + torch.arange(keys)
        pairs = positions.by_position(matrix[None]).expand(2, 1, -1, -1)[:, 0]
        assert torch.equal(pairs, 100 * i + j)
        distances = positions.by_distance(positions.span[None]).expand(2, 1, -1, -1)[:, 0]
        padding = torch.zeros(2, keys, dtype=torch.bool) if positions.padding_mask is None else positions.padding_mask
        real = ~padding[:, None, :].expand_as(distances)
        assert torch.equal(distances[real], (j - i)[real])


def test_one_object_serves_tables_of_different_clips_and_widths():
    positions = Positions(5, 5)
    for left, right in ((2, 3), (2, 1), (1, 3)):
        rows, index, _ = positions.clipped(left, right)
        table = torch.arange(-left, right + 1)
        assert torch.equal(table[rows][index], relative_distances(5, 5).clamp(-left, right))
    assert [relative_sinusoids(positions, width).size(1) for width in (4, 6)] == [4, 6]


def test_more_queries_than_keys_are_refused():
    with pytest.raises(ValueError, match="4 queries cannot be the last of only 3 keys"):
        Positions(4, 3)
