"""Checkpoints that other fairseqs wrote load into this one and compute the same logits.

`git show dfc2306:tests/checkpoints/fairseqs/make.py` shows how they were made.
"""

from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_posenc.checkpoints import load_checkpoint
from tests.checkpoints.kept import logits

FILES = sorted((Path(__file__).parent / "fairseqs").glob("*.pt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_gives_the_same_logits(path, tmp_path):
    state = load_checkpoint(path)
    if path.stem.endswith("-stock"):
        state["cfg"]["model"].arch = state["cfg"]["model"]._name = "transformer_sinusoidal_tiny"
    torch.save(state, tmp_path / "checkpoint.pt")
    overrides = {"data": str(path.parent), "source_lang": "en", "target_lang": "de"}
    [model], _ = checkpoint_utils.load_model_ensemble([str(tmp_path / "checkpoint.pt")], arg_overrides=overrides)
    torch.testing.assert_close(*logits(model.eval(), path), rtol=0, atol=1e-5)
