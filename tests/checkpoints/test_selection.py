"""The selection of the last N checkpoints."""

from pathlib import Path

import pytest

from fairseq_posenc.checkpoints import CheckpointError, last_epoch_checkpoints, last_update_checkpoints

FILES = [
    *("checkpoint1.pt", "checkpoint2.pt", "checkpoint9.pt", "checkpoint10.pt", "checkpoint11.pt"),
    *("checkpoint_1_900.pt", "checkpoint_2_1000.pt", "checkpoint_10_20000.pt", "checkpoint_9_15000.pt"),
    *("checkpoint_best.pt", "checkpoint_last.pt", "averaged.pt", "checkpoint.best_bleu_31.20.pt"),
    *("checkpoint12.pt.tmp", "checkpoint13-shard0.pt", ".checkpoint14.pt", "checkpoint_3_99999.pt.tmp"),
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).touch()
    (tmp_path / "checkpoint99.pt").mkdir()
    return tmp_path


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_by_epoch_as_numbers(directory: Path) -> None:
    assert names(last_epoch_checkpoints(directory, 3)) == [
        "checkpoint9.pt",
        "checkpoint10.pt",
        "checkpoint11.pt",
    ]
    assert last_epoch_checkpoints(str(directory), 1) == [directory / "checkpoint11.pt"]


def test_by_updates_of_any_epoch(directory: Path) -> None:
    assert names(last_update_checkpoints(directory, 3)) == [
        *("checkpoint_2_1000.pt", "checkpoint_9_15000.pt", "checkpoint_10_20000.pt"),
    ]


def test_up_to(directory: Path) -> None:
    assert names(last_epoch_checkpoints(directory, 2, up_to=10)) == ["checkpoint9.pt", "checkpoint10.pt"]
    assert names(last_update_checkpoints(directory, 2, up_to=1000)) == [
        *("checkpoint_1_900.pt", "checkpoint_2_1000.pt"),
    ]


def test_too_few(directory: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds 5 epoch checkpoints \(.*\), 6 were asked for"):
        last_epoch_checkpoints(directory, 6)
    with pytest.raises(CheckpointError, match=r"holds 1 update checkpoints up to update 999 .*, 2 were asked for"):
        last_update_checkpoints(directory, 2, up_to=999)


def test_invalid_arguments(directory: Path) -> None:
    with pytest.raises(CheckpointError, match="must be at least 1"):
        last_epoch_checkpoints(directory, 0)
    with pytest.raises(CheckpointError, match="is not a directory"):
        last_epoch_checkpoints(directory / "checkpoint1.pt", 1)


def test_a_real_training(trained: Path) -> None:
    assert names(last_epoch_checkpoints(trained, 2)) == ["checkpoint1.pt", "checkpoint2.pt"]
    assert names(last_update_checkpoints(trained, 4))[-1] == "checkpoint_2_5.pt"
