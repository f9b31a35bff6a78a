"""Trainings with other settings are moved aside and restored, also after a kill."""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from posenc_experiments.base.markers import write_json
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.training import superseded, train


def trained(experiment: Experiment, inputs: str, value: int) -> None:
    train.prepare_checkpoints(experiment, inputs)
    torch.save({"value": torch.tensor([value])}, experiment.last_checkpoint)
    experiment.train_log.write_text(f"log {value}")
    write_json(experiment.directory / "experiment.json", experiment.description())


def test_a_training_with_other_settings_is_moved_aside_and_restored_with_them(experiment: Experiment) -> None:
    trained(experiment, "inputs", 1)
    assert not superseded.exchange(experiment, "inputs")
    assert experiment.last_checkpoint.is_file()
    assert not superseded.exchange(experiment, "other inputs")
    assert list(experiment.directory.rglob("experiment.json")) == [experiment.directory / "experiment.json"]
    old = experiment.directory / "superseded-1"
    assert torch.load(old / "checkpoints" / "checkpoint_last.pt")["value"] == 1
    assert (old / "train.log").read_text() == "log 1"
    assert not experiment.train_log.exists()
    about = experiment.directory / "experiment.json"
    first = about.read_text()
    trained(experiment, "other inputs", 2)
    about.write_text(first.replace("tiny", "tinier"))  # the description of the second training
    assert superseded.exchange(experiment, "inputs")
    assert about.read_text() == first  # the description is that of the current files
    assert torch.load(experiment.last_checkpoint)["value"] == 1
    assert experiment.train_log.read_text() == "log 1"
    [old] = experiment.directory.glob("superseded-*")
    assert torch.load(old / "checkpoints" / "checkpoint_last.pt")["value"] == 2


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_after_a_kill_the_next_run_moves_the_remaining_files(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    trained(experiment, "inputs", 1)
    left = [0]

    def killed(origin: Path, target: Path) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        origin.rename(target)

    def killed_exchange(inputs: str) -> None:
        left[0] = moves
        with monkeypatch.context() as patch:
            patch.setattr("posenc_experiments.training.superseded.os.replace", killed)
            with suppress(KeyboardInterrupt):
                superseded.exchange(experiment, inputs)

    killed_exchange("other inputs")
    assert not experiment.is_in_place
    superseded.exchange(experiment, "other inputs")
    [old] = experiment.directory.glob("superseded-*")
    assert sorted(path.name for path in old.iterdir()) == ["checkpoints", "experiment.superseded.json", "train.log"]
    assert not experiment.checkpoints.exists()
    killed_exchange("inputs")
    assert not experiment.is_in_place
    assert not superseded.exchange(experiment, "other inputs")  # these have no training
    assert not experiment.checkpoints.exists()
    assert superseded.exchange(experiment, "inputs")
    assert experiment.is_in_place
    assert torch.load(experiment.last_checkpoint)["value"] == 1
    assert experiment.train_log.read_text() == "log 1"
    assert not list(experiment.directory.glob("superseded-*"))


@pytest.mark.parametrize("damaged", ["null", "[]", "{}", "5"])
def test_a_training_with_a_damaged_marker_is_moved_aside(experiment: Experiment, damaged: str) -> None:
    trained(experiment, "inputs", 1)
    shutil.rmtree(experiment.checkpoints)
    experiment.averaged.write_text("weights")
    experiment.markers.set_done("train", "inputs", [])
    experiment.markers.path("train").write_text(damaged)
    assert not superseded.exchange(experiment, "inputs")
    assert (experiment.directory / "superseded-1" / "averaged.pt").is_file()


def test_a_training_without_checkpoints_is_moved_aside_too(experiment: Experiment) -> None:
    trained(experiment, "inputs", 1)
    experiment.averaged.write_text("weights")
    experiment.markers.set_done("train", "inputs", [])
    shutil.rmtree(experiment.checkpoints)
    superseded.exchange(experiment, "other inputs")
    assert (experiment.directory / "superseded-1" / "averaged.pt").is_file()
    assert superseded.exchange(experiment, "inputs")
    assert experiment.averaged.read_text() == "weights"
    assert experiment.markers.is_done("train", "inputs")
