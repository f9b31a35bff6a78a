"""`fairseq-posenc average`, as a user runs it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fairseq_posenc.checkpoints import load_checkpoint
from posenc_experiments.cli import group
from tests.checkpoints.changes import Altered


def run(*arguments: object) -> Result:
    return CliRunner().invoke(group, ["average", *map(str, arguments)])


def inputs(output: Path) -> list[str]:
    return [Path(path).name for path in load_checkpoint(output)["extra_state"]["averaged_from"]]


def test_it_averages_in_any_directory(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "checkpoints")
    words = ["average", "--output", "averaged.pt", "--last-epochs", "2", "checkpoints"]
    command = [sys.executable, "-m", "posenc_experiments", *words]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines() == [
        "reading checkpoints/checkpoint1.pt",
        "reading checkpoints/checkpoint2.pt",
        "wrote averaged.pt: the average of 2 checkpoints",
    ]
    assert inputs(tmp_path / "averaged.pt") == ["checkpoint1.pt", "checkpoint2.pt"]


#: files of a long training; those of the second line are no checkpoints of an epoch or update
FILES = [
    *("checkpoint2.pt", "checkpoint9.pt", "checkpoint10.pt", "checkpoint_2_1000.pt", "checkpoint_10_20000.pt"),
    *("checkpoint_best.pt", "checkpoint_last.pt", "averaged.pt", "checkpoint12.pt.tmp", "checkpoint13-shard0.pt"),
]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--last-epochs", 2), ["checkpoint9.pt", "checkpoint10.pt"]),
        (("--last-epochs", 2, "--up-to", 9), ["checkpoint2.pt", "checkpoint9.pt"]),
        (("--last-updates", 2), ["checkpoint_2_1000.pt", "checkpoint_10_20000.pt"]),
        (("--last-updates", 1, "--up-to", 19999), ["checkpoint_2_1000.pt"]),
    ],
)
def test_the_last_checkpoints_are_those_with_the_highest_numbers(
    trained: Path, tmp_path: Path, flags: tuple[object, ...], expected: list[str]
) -> None:
    for name in FILES:
        shutil.copy(trained / "checkpoint1.pt", tmp_path / name)
    result = run("-o", tmp_path / "mean.pt", *flags, tmp_path)
    assert result.exit_code == 0, result.output
    assert inputs(tmp_path / "mean.pt") == expected


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--last-epochs", 9, "DIRECTORY"], "holds 2 epoch checkpoints"),
        (["--last-updates", 2, "--up-to", 1, "DIRECTORY"], "holds 1 update checkpoints up to update 1 "),
        (["--last-epochs", 0, "DIRECTORY"], "0 is not in the range x>=1"),
        (["--last-epochs", 1, "--last-updates", 1, "DIRECTORY"], "name one DIRECTORY and --last-epochs or"),
        (["--last-epochs", 1, "DIRECTORY", "DIRECTORY"], "name one DIRECTORY and --last-epochs or"),
        (["--last-epochs", 1, "missing"], "missing is not a directory"),
        (["--up-to", 3, "DIRECTORY"], "name one DIRECTORY and --last-epochs or"),
        (["DIRECTORY"], "name one DIRECTORY and --last-epochs or"),
        (["missing.pt"], "missing.pt cannot be read"),
    ],
)
def test_wrong_arguments_are_refused_and_nothing_is_written(
    trained: Path, tmp_path: Path, arguments: list[object], says: str
) -> None:
    arguments = [trained if argument == "DIRECTORY" else argument for argument in arguments]
    result = run("--output", tmp_path / "averaged.pt", *arguments)
    assert result.exit_code != 0
    assert says in result.output
    assert not list(tmp_path.iterdir())


def test_different_trainings_are_averaged_only_if_allowed(trained: Path, altered: Altered, tmp_path: Path) -> None:
    seed_7 = altered("seed-7.pt", lambda state: state["cfg"]["common"].update(seed=7))
    words = ("-o", tmp_path / "averaged.pt", trained / "checkpoint2.pt", seed_7)
    refused = run(*words)
    assert refused.exit_code == 1
    assert "are of different trainings (seed is 7 and 1)" in refused.output
    assert not (tmp_path / "averaged.pt").exists()
    assert run(*words, "--allow-different-runs").exit_code == 0
