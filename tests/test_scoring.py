"""Forced scoring, whatever stands beside a target in its batch."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fairseq_posenc.scoring import log_probabilities
from fairseq_posenc.trained import Trained
from tests.models import build_model, enlarge_positions, make_task, sentences

TASK = make_task()
#: the number of each target's source
OF_SOURCE = (0, 1, 0, 2, 1, 0)


def trained(name: str) -> Trained:
    return Trained(enlarge_positions(build_model(f"transformer_{name}_tiny")), TASK, Path(), Path())


def pairs():
    """Three sources of several lengths with six targets, in no order."""
    sources = sentences(TASK, [4, 11, 7])
    return [sources[number] for number in OF_SOURCE], sentences(TASK, [5, 9, 1, 8, 12, 3], seed=6)


@torch.no_grad()
def alone(model, source, target):
    """One pair's log-probabilities, without batches."""
    logits, _ = model(source[None], torch.tensor([len(source)]), torch.cat([target[-1:], target[:-1]])[None])
    table = torch.log(torch.exp(logits[0]) / torch.exp(logits[0]).sum(-1, keepdim=True))
    return np.array([float(table[place, token]) for place, token in enumerate(target)])


@pytest.mark.parametrize("name", ["sinusoidal", "diet_abs", "forget"])
def test_scores_are_those_without_a_batch(name, monkeypatch):
    one = trained(name)
    sources, targets = pairs()
    expected = [alone(one.model, source, target) for source, target in zip(sources, targets, strict=True)]
    assert not np.allclose(expected[0][:1], expected[2][:1])
    for max_tokens in (30, 2000):
        monkeypatch.setattr("fairseq_posenc.scoring.BATCH_TOKENS", max_tokens)
        found = log_probabilities(one, sources, targets)
        for value, score in zip(expected, found, strict=True):
            np.testing.assert_allclose(score, value, rtol=0, atol=1e-6)
