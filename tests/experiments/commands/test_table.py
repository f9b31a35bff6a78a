"""A paper's table as a user makes it: the whole command, killed and called again."""

import csv
import re
from pathlib import Path

import pytest

from posenc_experiments.base.markers import read_json
from tests.experiments.tables import HEADER, ROW, kill_when, plan, run_table, write_table


@pytest.mark.slow
def test_killed_while_training_and_called_again_it_ends_with_the_table(recipe: Path) -> None:
    write_table(recipe, "# Paper", HEADER, ROW, ROW.replace("shaw-k2", "bad").replace("K = 2", "broken"))
    good, bad = plan(recipe).experiments
    kill_when((good.checkpoints / "checkpoint1.pt").exists, recipe)
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
