"""A real training of stock fairseq, whose checkpoints the tests in this folder read, alter and damage."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_posenc.checkpoints import load_checkpoint
from tests.toy import binarize, make_corpus, train


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A binarized toy corpus with one dictionary."""
    directory = tmp_path_factory.mktemp("toy")
    return binarize(make_corpus(directory / "text"), directory / "data-bin", joined=True)


@pytest.fixture(scope="session")
def trained(data: Path) -> Path:
    """The checkpoints of two epochs (three updates each) of stock fairseq, after every update and epoch.

    They hold all that fairseq-train writes: tied embeddings, BLEU counts (NumPy arrays), EMA, Adam's state.
    """
    directory = data.parent / "checkpoints"
    train(
        *(data, directory, "transformer", "--share-all-embeddings", "--max-update", "6", "--store-ema"),
        *("--ema-fp32", "--ema-decay", "0.9", "--save-interval-updates", "1"),
        *("--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 10}', "--eval-bleu-detok", "space"),
        validate=True,
    )
    return directory


@pytest.fixture
def altered(trained: Path, tmp_path: Path) -> Callable[..., Path]:
    """`altered(name, change)` writes checkpoint1.pt after `change(state)` as `name`, and returns the path.

    Further arguments are torch.save's.
    """

    def write(name: str, change: Callable[[dict[str, Any]], object], **how: Any) -> Path:
        state = load_checkpoint(trained / "checkpoint1.pt")
        change(state)  # in memory: tensors are mapped copy-on-write
        torch.save(state, tmp_path / name, **how)
        return tmp_path / name

    return write
