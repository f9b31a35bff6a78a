"""The kept checkpoints of commit 2a633bd, and the logits that they had then."""

from pathlib import Path

import torch

from fairseq_posenc.checkpoints import load_checkpoint

FOLDER = Path(__file__).parent / "at_2a633bd"


def logits(model, path):
    """The logits that a model computes now, and those in its file."""
    extra = load_checkpoint(path)["extra_state"]
    with torch.no_grad():
        return model(extra["source"], extra["source"].ne(1).sum(1), extra["target"])[0], extra["logits"]
