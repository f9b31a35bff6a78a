"""Encodings add few operations: in a model that is small for its machine, their number decides the speed."""

from functools import cache

import pytest
import torch

from fairseq_posenc.encodings import ENCODINGS

benchmark = pytest.importorskip(
    "posenc_experiments.evaluation.measurements.benchmark", exc_type=ImportError
)  # needs the recipes

#: the most operations that an encoding adds to stock fairseq's, in a forward and a backward pass of 2 + 2 layers; below
#: zero, because cross-attention is fused here, and because stock's sinusoids take 47
MOST_ADDED = {
    **{"nopos": -43, "sinusoidal": -13, "learned": -23, "alibi": -45, "rotary": -21},
    **{"diet_rel": -1, "diet_abs": -7, "t5": 5, "linformer": 5, "huang2": 9, "tupe_abs": 19, "relative_key": 21},
    **{"huang1": 21, "huang3": 31, "kerple_power": 33, "tupe_rel": 39, "diet_abs_lin": 41, "shaw": 45},
    **{"huang4": 57, "kerple_log": 57, "xlnet": 67, "transformer_xl": 71, "forget": 77, "deberta": 85, "pope": 87},
    **{"sinusoidal_qk": 61, "learned_qk": 71},
    **{"gated_t5": 105, "fire": 191},  # gates of each query, and a network with one hidden layer
}


@cache
def operations(name):
    """The operations of a model in passes over 4 sentences of 11 words."""
    settings = benchmark.Settings(size="tiny", tokens=44, lengths=(11,))
    task, batches = benchmark.work("operations", settings)
    [batch, *_] = batches["n = 11"]
    return benchmark.build("operations", settings, task, batch, name)(batch)


@pytest.mark.parametrize("name", ENCODINGS)
def test_an_encoding_adds_few_operations(name):
    assert operations(name) - operations(benchmark.STOCK) <= MOST_ADDED[name]


def test_operations_are_counted_without_views():
    x = torch.ones(2, 3, requires_grad=True)
    assert benchmark.count_operations(lambda: x.view(3, 2).t().reshape(6).sum()) == 2  # reshape copies
    assert benchmark.count_operations(lambda: x.detach()[0].unsqueeze(0).expand(4, 3)) == 0
    assert benchmark.count_operations(lambda: (x * 2).sum().backward()) == 5  # mul, sum; ones_like, mul, add to grad
