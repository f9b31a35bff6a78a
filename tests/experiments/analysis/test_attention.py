"""Statistics of attention against plain loops, and on attention whose statistics are known."""

import math

import pytest
import torch

from posenc_experiments.analysis.attention import LayerStatistics

HEADS = 2


def sentence(queries, keys, seed, causal=False):
    """Weights, logits, logits without positions and visible pairs of one sentence."""
    torch.manual_seed(seed)
    plain, added = torch.randn(2, HEADS, queries, keys)
    visible = torch.ones(queries, keys, dtype=torch.bool)
    if causal:
        visible = visible.tril()
    logits = plain + added
    return logits.masked_fill(~visible, -torch.inf).softmax(-1), logits, plain, visible


def naive_means(sentences, head):
    """What LayerStatistics tells of one head, in plain loops."""
    by_query = {
        name: [] for name in ("mean_distance", "mean_absolute_distance", "entropy", "locality", "-1", "0", "+1")
    }
    relative, ranks, symmetries = [], [], []
    for weights, logits, _, visible in sentences:
        queries, keys = visible.shape
        for i in range(queries):
            row = [float(weight) for weight in weights[head, i]]
            by_query["mean_distance"].append(sum(w * (j - i) for j, w in enumerate(row)))
            by_query["mean_absolute_distance"].append(sum(w * abs(j - i) for j, w in enumerate(row)))
            entropy = -sum(w * math.log(w) for w in row if w > 0)
            by_query["entropy"].append(entropy)
            by_query["locality"].append(sum(w / 2 ** abs(j - i) for j, w in enumerate(row)))
            for name in ("-1", "0", "+1"):
                j = i + int(name)
                by_query[name].append(row[j] if 0 <= j < keys else 0.0)
            choices = int(visible[i].sum())
            if choices > 1:
                relative.append(entropy / math.log(choices))
        singular = torch.linalg.svdvals(logits[head]).tolist()
        tolerance = max(queries, keys) * torch.finfo(logits.dtype).eps * singular[0]
        ranks.append(sum(value > tolerance for value in singular) / min(queries, keys))
        symmetries += naive_symmetry(weights[head].tolist())
    means = {name: sum(values) / len(values) for name, values in by_query.items()}
    return means | {
        "relative_entropy": sum(relative) / len(relative),
        "logit_rank": sum(ranks) / len(ranks),
        "symmetry": sum(symmetries) / len(symmetries) if symmetries else None,
    }


def naive_symmetry(matrix):
    """Of one sentence, in a list; nothing if it is too short."""
    if len(matrix) != len(matrix[0]):
        return []
    scaled = []
    for i, row in enumerate(matrix):
        reach = min(i, len(row) - 1 - i)
        differences = [abs(row[i - offset] - row[i + offset]) for offset in range(1, reach + 1)]
        if differences:
            least, most = min(differences), max(differences)
            scaled += [(value - least) / (most - least) if most > least else 0.0 for value in differences]
    return [1 - sum(scaled) / len(scaled)] if scaled else []


@pytest.mark.parametrize(("shapes", "causal"), [([(7, 7), (1, 1)], False), ([(6, 6)], True), ([(5, 8), (7, 3)], False)])
def test_statistics_are_those_of_plain_loops(shapes, causal):
    sentences = [sentence(*shape, seed, causal) for seed, shape in enumerate(shapes)]
    has_symmetry = all(queries == keys for queries, keys in shapes) and not causal
    layer = LayerStatistics(HEADS, is_bidirectional=has_symmetry)
    for tensors in sentences:
        layer.add(*tensors)
    for head, figures in enumerate(layer.attention()["heads"]):
        expected = naive_means(sentences, head)
        share = {name: expected.pop(name) for name in ("-1", "0", "+1")}
        if not has_symmetry:
            expected["symmetry"] = None
        assert figures.pop("share") == pytest.approx(share)
        assert figures == pytest.approx(expected)


@pytest.mark.parametrize(("shape", "causal"), [((40, 40), False), ((6, 6), True), ((5, 8), False)])
def test_what_positions_add_is_the_mean_by_distance(shape, causal):
    sentences = [sentence(*shape, seed, causal) for seed in (1, 2)]
    layer = LayerStatistics(HEADS)
    for tensors in sentences:
        layer.add(*tensors)
    by_distance: dict[int, list[list[float]]] = {}
    for _, logits, plain, visible in sentences:
        for i, j in visible.nonzero().tolist():
            if abs(j - i) <= 32:
                by_distance.setdefault(j - i, []).append((logits - plain)[:, i, j].tolist())
    added = layer.position_logits()
    assert added["distances"] == sorted(by_distance)
    for head, values in enumerate(added["heads"]):
        expected = [sum(pair[head] for pair in by_distance[d]) / len(by_distance[d]) for d in sorted(by_distance)]
        assert values == pytest.approx(expected, abs=1e-6)
