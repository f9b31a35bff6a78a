import pytest
import torch

from fairseq_posenc.positions import Positions, absolute_positions, relative_distances


def test_distance_is_key_minus_query_with_queries_at_the_end():
    assert relative_distances(3, 3).tolist() == [[0, 1, 2], [-1, 0, 1], [-2, -1, 0]]
    assert relative_distances(1, 4).tolist() == [[-3, -2, -1, 0]]


def test_absolute_positions_count_real_tokens_only():
    left = torch.tensor([[True, True, False, False, False], [False] * 5])
    assert absolute_positions(left).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]
    assert absolute_positions(left.flip(1)).tolist() == [[0, 1, 2, 0, 0], [0, 1, 2, 3, 4]]
    assert Positions(1, 3).absolute.tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("k", [0, 1, 2, 5, 100])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 6), (4, 4), (2, 5)])
def test_clipped_index_reads_the_row_of_each_clipped_distance(k, queries, keys):
    table = torch.arange(-k, k + 1)  # row t holds its own distance
    rows, index = Positions(queries, keys).clipped(k)
    assert torch.equal(table[rows][index], relative_distances(queries, keys).clamp(-k, k))
    assert len(table[rows]) <= min(2 * k, queries + keys - 2) + 1


def test_more_queries_than_keys_are_refused():
    with pytest.raises(ValueError, match="4 queries cannot be the last of only 3 keys"):
        Positions(4, 3)
