"""A paper's table as a user makes it: the whole command, killed and called again."""

import csv
import re
import signal
import subprocess
from pathlib import Path

import pytest

from posenc_experiments.base.files import read_json
from tests.experiments.tables import HEADER, ROOT, ROW, command, plan, run_table, write_table
from tests.waiting import is_held, kill_when, wait_until


@pytest.mark.slow
def test_killed_while_training_and_called_again_it_ends_with_the_table(recipe: Path) -> None:
    write_table(recipe, "# Paper", HEADER, ROW, ROW.replace("shaw-k2", "bad").replace("K = 2", "broken"))
    good, bad = plan(recipe).experiments
    kill_when((good.checkpoints / "checkpoint1.pt").exists, command(recipe))
    process = run_table(recipe)
    assert process.returncode == 1
    assert "shaw-k2 en-de seed 1: resumes from its last checkpoint" in process.stdout
    error = process.stderr.strip()
    assert "\n" not in error
    assert error.startswith("Error: Training bad en-de seed 1 failed (exit status 1): ")
    assert error.count(f"; the whole log is {bad.train_log}.") == 1
    assert Path(error.rsplit(" ", 1)[1].rstrip(".")).is_file()
    score = read_json(good.test_file("test", "sacrebleu.json"))[0]["score"]
    assert re.search(rf"K = 2 +{score:.2f}.* 25.80 ", process.stdout)
    assert re.search(r"broken +25.80 +failed\n", process.stdout)
    tables = recipe.parent / "output" / "tiny" / "tables"
    rows = list(csv.DictReader((tables / "paper.csv").read_text().splitlines()))
    assert [float(row["score"] or "nan") == score for row in rows] == [True, False]

    shown = run_table(recipe, "--show")
    assert shown.returncode == 0
    assert "training not finished" in shown.stdout
    assert f"{score:.2f}" in (tables / "paper.md").read_text()


def test_interrupted_it_ends_its_jobs(recipe: Path, tmp_path: Path) -> None:
    write_table(recipe, "# Paper", HEADER, ROW)
    (experiment,) = plan(recipe).experiments
    with open(tmp_path / "said", "wb") as said:
        process = subprocess.Popen(command(recipe), cwd=ROOT, stdout=said)
    wait_until(experiment.train_log.exists, process)
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    assert "Interrupted: run again to resume." in (tmp_path / "said").read_text()
    assert not is_held(experiment.directory / ".lock")
