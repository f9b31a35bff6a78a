"""scripts/average_checkpoints.py, as a user runs it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from fairseq_posenc.checkpoints import load_checkpoint
from posenc_experiments.cli import group
from tests.toy import PACKAGE

SCRIPT = PACKAGE.parent / "scripts" / "average_checkpoints.py"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(group, ["average", *map(str, arguments)])


def inputs(output: Path) -> list[str]:
    return [Path(path).name for path in load_checkpoint(output)["extra_state"]["averaged_from"]]


def test_from_another_directory(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "checkpoints")
    process = subprocess.run(
        [sys.executable, SCRIPT, "--output", "averaged.pt", "--last-epochs", "2", "checkpoints"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines() == [
        "reading checkpoints/checkpoint1.pt",
        "reading checkpoints/checkpoint2.pt",
        "wrote averaged.pt: the average of 2 checkpoints",
    ]
    assert inputs(tmp_path / "averaged.pt") == ["checkpoint1.pt", "checkpoint2.pt"]


def test_last_updates(trained: Path, tmp_path: Path) -> None:
    output = tmp_path / "averaged.pt"
    assert run("-o", output, "--last-updates", 2, "--up-to", 4, trained).exit_code == 0
    assert inputs(output) == ["checkpoint_1_2.pt", "checkpoint_2_4.pt"]


def test_named_files(trained: Path, tmp_path: Path) -> None:
    output = tmp_path / "averaged.pt"
    result = run(trained / "checkpoint2.pt", trained / "checkpoint_1_1.pt", "--output", output)
    assert result.exit_code == 0
    assert inputs(output) == ["checkpoint2.pt", "checkpoint_1_1.pt"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--last-epochs", 9, "DIRECTORY"], "holds 2 epoch checkpoints"),
        (["--last-epochs", 0, "DIRECTORY"], "must be at least 1"),
        (["--last-epochs", 1, "--last-updates", 1, "DIRECTORY"], "exclude each other"),
        (["--last-epochs", 1, "DIRECTORY", "DIRECTORY"], "take one directory, not 2"),
        (["--last-epochs", 1, "missing"], "missing is not a directory"),
        (["--up-to", 3, "DIRECTORY"], "--up-to needs --last-epochs or --last-updates"),
        (["DIRECTORY"], "is a directory; say which"),
        (["missing.pt"], "missing.pt does not exist"),
        ([], "Missing argument"),
    ],
)
def test_mistakes(trained: Path, tmp_path: Path, arguments: list[object], says: str) -> None:
    arguments = [trained if argument == "DIRECTORY" else argument for argument in arguments]
    result = run("--output", tmp_path / "averaged.pt", *arguments)
    assert result.exit_code != 0
    assert says in result.output
    assert not list(tmp_path.iterdir())


def test_help() -> None:
    help_text = run("--help").output
    assert all(option in help_text for option in ("--output", "--last-epochs", "--last-updates", "--up-to"))


def test_different_runs(trained: Path, tmp_path: Path) -> None:
    state = load_checkpoint(trained / "checkpoint2.pt")
    state["cfg"]["common"]["seed"] = 7
    other, output = tmp_path / "other.pt", tmp_path / "averaged.pt"
    torch.save(state, other)
    refused = run("-o", output, trained / "checkpoint1.pt", other)
    assert refused.exit_code == 1
    assert "are of different trainings (seed is 7 and 1)" in refused.output
    assert not output.exists()
    assert run("-o", output, "--allow-different-runs", trained / "checkpoint1.pt", other).exit_code == 0
