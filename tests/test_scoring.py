"""Forced scoring, whatever stands beside a target in its batch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fairseq_posenc.scoring import log_probabilities
from fairseq_posenc.trained import Trained
from tests.models import TASK, build_model, enlarge_positions, sentences

#: the number of each target's source
SOURCE_NUMBERS = (0, 1, 0, 2, 1, 0)
#: three sources of several lengths with six targets, in no order
SOURCES = [sentences([4, 11, 7])[number] for number in SOURCE_NUMBERS]
TARGETS = sentences([5, 9, 1, 8, 12, 3], seed=6)


@torch.no_grad()
def alone(model: Any, source: torch.Tensor, target: torch.Tensor) -> np.ndarray:
    """One pair's log-probabilities, without batches."""
    logits, _ = model(source[None], torch.tensor([len(source)]), target.roll(1)[None])
    table = torch.log(torch.exp(logits[0]) / torch.exp(logits[0]).sum(-1, keepdim=True))
    return table[torch.arange(len(target)), target].numpy()


@pytest.mark.parametrize("name", ["sinusoidal", "diet_abs", "forget"])
def test_scores_are_those_without_a_batch(name, monkeypatch):
    trained = Trained(enlarge_positions(build_model(f"transformer_{name}_tiny")), TASK, Path(), Path())
    expected = [alone(trained.model, source, target) for source, target in zip(SOURCES, TARGETS, strict=True)]
    assert not np.allclose(expected[0][:1], expected[2][:1])
    for max_tokens in (30, 2000):
        monkeypatch.setattr("fairseq_posenc.scoring.BATCH_TOKENS", max_tokens)
        for scores, exact in zip(log_probabilities(trained, SOURCES, TARGETS), expected, strict=True):
            np.testing.assert_allclose(scores, exact, rtol=0, atol=1e-6)
