"""Analyses of models with --urpe."""

import pytest
import torch

from fairseq_posenc.attention.observing import attentions, observing
from posenc_experiments.analysis.attention import LayerStatistics
from tests.models import build_model, enlarge_positions


def test_analyses_see_the_share_of_each_key_in_the_multiplied_weights():
    """Entropy and distances are those of |w_ij| / sum_j |w_ij|, since w_ij may be negative and not sum to 1."""
    model, seen = enlarge_positions(build_model("transformer_t5_tiny", "--urpe", "true")), []
    encoder = {place: module for place, module in attentions(model).items() if place == ("encoder", 0)}
    with observing(encoder, lambda place, observed: seen.append(observed)), torch.no_grad():
        model.encoder(torch.tensor([[5, 6, 7, 8, 2]]), torch.tensor([5]))
    (observed,) = seen
    assert observed.weights.min() < 0
    by_hand = [[w.abs() / row.abs().sum() for w in row] for row in observed.weights[0, 1]]
    torch.testing.assert_close(observed.shares[0, 1], torch.tensor(by_hand, dtype=torch.float64))
    statistics = LayerStatistics(2)
    statistics.add(observed.shares[0], observed.logits[0], observed.content[0], torch.ones(5, 5, dtype=torch.bool))
    entropy = sum(-w * w.log() for row in by_hand for w in row) / 5
    assert statistics.attention()["heads"][1]["entropy"] == pytest.approx(float(entropy))
