"""The directory of checkpoints is prepared for a start or a resume."""

import os
from pathlib import Path

import pytest
import torch

from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.training import train
from tests.experiments.tiny import make_experiment


@pytest.fixture
def experiment(recipe: Path) -> Experiment:
    return make_experiment(recipe.parent)


def save_checkpoint(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"value": torch.tensor([value])}, path)


def test_a_complete_checkpoint(experiment: Experiment) -> None:
    save_checkpoint(experiment.last_checkpoint, 1)
    save_checkpoint(experiment.checkpoints / "checkpoint2.pt", 2)
    before = experiment.last_checkpoint.read_bytes()
    assert train.prepare_checkpoints(experiment)
    assert experiment.last_checkpoint.read_bytes() == before


def test_an_incomplete_one_is_replaced_by_the_newest_complete_one(experiment: Experiment) -> None:
    for number in (9, 10, 11):
        save_checkpoint(experiment.checkpoints / f"checkpoint{number}.pt", number)
        os.utime(experiment.checkpoints / f"checkpoint{number}.pt", (number, number))
    for name in ("checkpoint11.pt", "checkpoint_last.pt", "checkpoint12.pt.tmp"):
        (experiment.checkpoints / name).write_bytes((experiment.checkpoints / "checkpoint9.pt").read_bytes()[:-50])
    assert train.prepare_checkpoints(experiment)
    assert torch.load(experiment.last_checkpoint)["value"] == 10
    assert not list(experiment.checkpoints.glob("*.tmp"))


def test_with_incomplete_ones_alone_training_starts_again(experiment: Experiment) -> None:
    train.prepare_checkpoints(experiment)
    experiment.last_checkpoint.write_bytes(b"PK")
    assert not train.prepare_checkpoints(experiment)
    assert not experiment.last_checkpoint.exists()
