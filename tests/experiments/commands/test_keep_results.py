"""scripts/keep_results.py copies results of scored experiments, without paths of the machine."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HERE = "quickstart/xa-xb/transformer_shaw_tiny/seed1"
FILES = ("experiment.json", "training.json", "test.hyp", "test.sacrebleu.json")


def keep(output: Path, results: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(ROOT / "scripts/keep_results.py"), str(output), str(results)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False)


def test_results_are_copied_with_paths_of_the_repository(tmp_path: Path) -> None:
    output = tmp_path / "output"
    experiment = output / HERE
    (experiment / "done").mkdir(parents=True)
    (experiment / "done/score.json").touch()
    (output / "quickstart/xa-xb/transformer_unfinished_tiny/seed1").mkdir(parents=True)
    for name in (*FILES, "averaged.pt", "test.ref", "train.log"):
        (experiment / name).write_text(name)
    data = tmp_path / "elsewhere/data/quickstart/xa-xb/prepared/binarized"
    (experiment / "command.sh").write_text(
        f"exec {tmp_path}/.venv/bin/python -m fairseq_cli.train {data} --user-dir {tmp_path}/fairseq_posenc "
        f"--seed 1 --save-dir {experiment}/checkpoints\n"
    )
    assert keep(output, tmp_path / "results").returncode == 0
    kept = tmp_path / "results" / HERE
    assert sorted(path.name for path in kept.iterdir()) == sorted((*FILES, "command.sh"))
    assert (kept / "command.sh").read_text() == (
        "exec python -m fairseq_cli.train data/quickstart/xa-xb/prepared/binarized --user-dir fairseq_posenc "
        f"--seed 1 --save-dir output/{HERE}/checkpoints\n"
    )


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
