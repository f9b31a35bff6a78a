"""scripts/keep_results.py copies results of scored experiments, without paths of the machine."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from posenc_experiments.base.run import write_command
from posenc_experiments.experiment.layout import find_experiments

ROOT = Path(__file__).resolve().parents[3]
HERE = "quickstart/xa-xb/transformer_sinusoidal_tiny/seed1"
FILES = ("experiment.json", "training.json", "test.hyp", "test.sacrebleu.json")


def keep(output: Path, results: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(ROOT / "scripts/keep_results.py"), str(output), str(results)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """The directory of one scored experiment, that of a result in this repository, and of one without scores."""
    output = tmp_path / "output"
    experiment = output / HERE
    shutil.copytree(ROOT / "results" / HERE, experiment)
    (experiment / "done").mkdir(parents=True)
    (experiment / "done/score.json").touch()
    (output / "quickstart/xa-xb/transformer_unfinished_tiny/seed1").mkdir(parents=True)
    superseded = experiment / "superseded-1/done"
    superseded.mkdir(parents=True)
    (superseded / "score.json").touch()
    (experiment / "analysis.json").write_text("{}")
    for name in ("averaged.pt", "train.log"):
        (experiment / name).touch()
    (tmp_path / "a link").symlink_to(output)  # as the user named the directory
    words: list[str | Path] = [tmp_path / ".venv/bin/python", "-m", "fairseq_cli.train"]
    words += [tmp_path / "else where/it's/data/quickstart-short/xa-xb/prepared/binarized"]
    words += ["--user-dir", tmp_path / "fairseq_posenc", "--adam-betas", "(0.9, 0.98)"]
    words += ["--finetune-from-model", tmp_path / "a link" / "q/a-b/other/seed1/averaged.pt"]
    words += ["--save-dir", tmp_path / "a link" / HERE / "checkpoints"]
    write_command(experiment / "command.sh", words, {"OMP_NUM_THREADS": "1"})
    return output


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_results_are_copied_with_paths_of_the_repository(tmp_path: Path, output: Path) -> None:
    for _ in range(2):  # the second call replaces what the first kept
        assert keep(output, tmp_path / "results").returncode == 0
    assert files_of(tmp_path / "results").keys() == {
        f"{HERE}/{name}" for name in (*FILES, "command.sh", "analysis.json")
    }
    kept = tmp_path / "results" / HERE
    assert (kept / "command.sh").read_text() == (
        "#!/usr/bin/env bash\nset -euo pipefail\nexport OMP_NUM_THREADS=1\n"
        "exec python -m fairseq_cli.train data/quickstart-short/xa-xb/prepared/binarized --user-dir fairseq_posenc "
        "--adam-betas '(0.9, 0.98)' --finetune-from-model output/q/a-b/other/seed1/averaged.pt "
        f"--save-dir output/{HERE}/checkpoints\n"
    )


def test_what_a_killed_call_left_is_no_experiment(tmp_path: Path, output: Path) -> None:
    assert keep(output, tmp_path / "results").returncode == 0
    kept = tmp_path / "results" / HERE
    for left in ("seed1.123.tmp", "seed1.old"):
        shutil.copytree(kept, kept.with_name(left))
    assert find_experiments(tmp_path / "results") == [kept]


@pytest.mark.parametrize("where", ["output", "output/kept", "."])
def test_results_in_the_output_are_refused_and_nothing_is_lost(tmp_path: Path, output: Path, where: str) -> None:
    before = files_of(output)
    process = keep(output, tmp_path / where)
    assert process.returncode == 1
    assert process.stderr.count("\n") == 1
    assert files_of(output) == before


def test_an_experiment_directory_is_no_output_directory(tmp_path: Path, output: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "note").touch()
    assert "no scored experiment" in keep(output / HERE, tmp_path / "results").stderr
    assert files_of(tmp_path / "results").keys() == {"note"}


@pytest.mark.parametrize("name", ["experiment.json", "test.sacrebleu.json", "command.sh"])
def test_a_damaged_experiment_replaces_nothing(tmp_path: Path, output: Path, name: str) -> None:
    assert keep(output, tmp_path / "results").returncode == 0
    before = files_of(tmp_path / "results")
    (output / HERE / name).write_bytes(b"\xff")
    process = keep(output, tmp_path / "results")
    assert process.returncode == 1
    assert name in process.stderr
    assert process.stderr.count("\n") == 1
    assert files_of(tmp_path / "results") == before


def test_without_a_scored_experiment_nothing_is_written(tmp_path: Path) -> None:
    process = keep(tmp_path, tmp_path / "results")
    assert process.returncode == 1
    assert "no scored experiment" in process.stderr
    assert not (tmp_path / "results").exists()


def test_kept_results_name_their_commit_and_no_absolute_path() -> None:
    kept = sorted((ROOT / "results").rglob("experiment.json"))
    assert kept
    for path in kept:
        assert json.loads(path.read_text(encoding="utf-8"))["environment"]["commit"]
        command = (path.parent / "command.sh").read_text(encoding="utf-8")
        assert not [word for word in command.split() if word.startswith("/") and word != "/usr/bin/env"]
