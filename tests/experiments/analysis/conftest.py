"""Binarized pairs, and models on them that were never trained."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fairseq import options, tasks

import fairseq_posenc  # noqa: F401 - registers the architectures
from tests.models import enlarge_positions
from tests.toy import SOURCE, TARGET, TINY, binarize, make_corpus


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A test set of sentences of 1 to 20 words."""
    directory = tmp_path_factory.mktemp("pairs")
    corpus = make_corpus(directory / "text", lines={"train": 2, "test": 12}, max_words=20)
    return binarize(corpus, directory / "binarized")


@pytest.fixture
def checkpoint(data: Path, tmp_path: Path) -> Callable[..., Path]:
    """``checkpoint(arch, *flags)`` is the file of a tiny model with large position parameters."""
    binarized = data

    def write(arch: str, *flags: str, data: Path = binarized) -> Path:
        languages = ("--source-lang", SOURCE, "--target-lang", TARGET)
        arguments = options.parse_args_and_arch(
            options.get_training_parser(),
            [str(data), "--arch", arch, *TINY, "--task", "translation", *languages, *flags],
        )
        torch.manual_seed(1)
        model = enlarge_positions(tasks.setup_task(arguments).build_model(arguments))
        history = [{"criterion_name": "", "num_updates": 0, "lr_scheduler_state": {}}]
        state = {"args": arguments, "model": model.state_dict(), "extra_state": {}, "optimizer_history": history}
        torch.save(state, tmp_path / "untrained.pt")
        return tmp_path / "untrained.pt"

    return write
