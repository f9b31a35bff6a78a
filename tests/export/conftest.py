"""A real training, whose checkpoint the tests in this folder export, alter and damage."""

from pathlib import Path

import pytest

from tests.toy import PACKAGE, binarize, make_corpus, train


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A binarized toy corpus with a dictionary for each side, and its text in ../text."""
    directory = tmp_path_factory.mktemp("toy")
    return binarize(make_corpus(directory / "text"), directory / "prepared" / "binarized")


@pytest.fixture(scope="session")
def checkpoint(data: Path) -> Path:
    """A model with Shaw's vectors, shared by heads, after some updates."""
    directory = data.parents[1] / "checkpoints"
    train(
        *(data, directory, "transformer_shaw_tiny", "--position-sharing", "head", "--clipping-distance", "4"),
        *("--source-lang", "en", "--target-lang", "de", "--max-update", "70", "--dropout", "0"),
        user_dir=PACKAGE,
    )
    return directory / "checkpoint_last.pt"
