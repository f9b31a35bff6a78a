"""A paper's table: read from its file, and printed with its figures and what is missing."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from posenc_experiments.base.done import set_done
from posenc_experiments.base.files import write_json
from posenc_experiments.commands.table import make_rows
from posenc_experiments.evaluation.results import seal
from posenc_experiments.evaluation.tables.paper_table import read_table
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.workflow.plan import EXPERIMENT_STAGES, make_plan
from tests.experiments import tiny
from tests.experiments.tables import HEADER, ROW, call, plan, write_table
from tests.experiments.tiny import run_here

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = sorted(path for path in (ROOT / "recipes").glob("*/tables/*.tsv"))
OTHER = ROW.replace("K = 2", "absolute").replace("shaw-k2", "sinusoidal")


def show(recipe: Path, *options: str, name: str = "paper") -> Result:
    words = [recipe, name, "--gpus", "0", "--cpus", "1", *tiny.directories(recipe.parent), "--show"]
    result = run_here("table", *words, *options)
    if not isinstance(result.exception, SystemExit | None):
        raise result.exception
    return result


def csv_rows(recipe: Path) -> list[dict[str, str]]:
    """The rows of the table that the last call wrote."""
    return list(csv.DictReader((recipe.parent / "output/tiny/tables/paper.csv").read_text().splitlines()))


def finish(experiment: Experiment, bleu: float, historical: float | None = None, signature: str = "sig:bleu") -> None:
    """The files of an experiment that was scored."""
    write_json(experiment.about, experiment.description())
    scored = {"score": bleu, "signature": signature, "confidence_var": 0.5}
    files = {"sacrebleu": [{"name": "BLEU", **scored}, {"name": "chrF2", "score": 50.0, "signature": "sig:chrf"}]}
    if historical is not None:
        files["historical"] = [{"name": "BLEU", **scored, "score": historical, "signature": "sig:old"}]
    for kind, rows in files.items():
        write_json(experiment.test_file("test", f"{kind}.json"), [{**row, "seal": seal(row)} for row in rows])
    scores = experiment.test_file("test", "sacrebleu.json")
    set_done(experiment.directory, "score", EXPERIMENT_STAGES["score"].inputs(experiment), [scores])


def test_one_seed_has_its_interval_and_several_their_spread(recipe: Path) -> None:
    write_table(recipe, "# Paper", HEADER, ROW, OTHER)
    made = plan(recipe, "1,2").experiments
    for experiment, bleu in zip(made[::2], (24.0, 26.3), strict=True):
        finish(experiment, bleu)
    text = show(recipe).stdout
    assert re.search(r"Paper\n\nrow +BLEU +chrF +paper +difference\n", text)
    assert re.search(r"K = 2 +24.00 ± 0.50 +50.00 +25.80 +-1.80\n", text)
    assert "BLEU: sig:bleu\n" in text
    finish(made[1], 25.0, signature="sig:other")
    text = show(recipe, "--seeds", "1,2,3").stdout
    assert re.search(r"K = 2 +24.50 ± 0.71 +50.00 +25.80 +-1.30 +seed 3 not trained\n", text)
    finish(made[0], 24.0, signature="sig:other")
    assert "Warning: the BLEU signatures differ" in show(recipe).stdout


def test_the_historical_score_is_shown_beside_sacrebleus(recipe: Path) -> None:
    write_table(recipe, "# Paper", HEADER, ROW.replace("sacrebleu", "historical"))
    options = ["--set", "score.tokenized=split"]
    finish(plan(recipe, overrides=("score.tokenized=split",)).experiments[0], 25.0, historical=26.0)
    text = show(recipe, *options).stdout
    assert re.search(r"row +BLEU +chrF +tok. BLEU \(historical\) +paper", text)
    assert re.search(r"K = 2 +25.00 ± 0.50 +50.00 +26.00 ± 0.50 +25.8 +\+0.20\n", text)
    assert "tok. BLEU: sig:old\n" in text
    (cells,) = csv_rows(recipe)
    assert (float(cells["score"]), float(cells["bleu"]), cells["chrf"]) == (26.0, 25.0, "50.0")
    refused = show(recipe).stderr
    assert "line 3: tiny.yaml does not compute historical: add --set score.tokenized=split." in refused


def test_the_reason_of_a_missing_score_is_shown(recipe: Path) -> None:
    write_table(recipe, "# Paper", HEADER, ROW, OTHER)
    first, second = plan(recipe).experiments
    show(recipe)
    assert [row["missing"] for row in csv_rows(recipe)] == ["not trained", "not trained"]
    write_json(second.about, second.description())
    set_done(second.directory, "train", EXPERIMENT_STAGES["train"].inputs(second), [])
    first.directory.mkdir(parents=True)
    first.train_log.touch()
    show(recipe)
    assert [row["missing"] for row in csv_rows(recipe)] == ["training not finished", "not scored"]
    finish(first, 24.0)
    show(recipe)
    assert [row["score"] for row in csv_rows(recipe)] == ["24.0", ""]
    set_done(first.directory, "score", "other inputs", [])
    show(recipe)
    assert [row["score"] for row in csv_rows(recipe)] == ["", ""]  # scores of other settings are not shown


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], ["first row", "row, pair, conf"]),
        ([HEADER], ["has no rows"]),
        ([HEADER, ROW, ROW.replace("\ttest", "")], ["line 3", "6 columns instead of 7"]),
        ([HEADER, ROW.replace("shaw-k2", " ")], ["line 2", "no experiment ''"]),
        ([HEADER, ROW.replace("sacrebleu", "bleu")], ["line 2", "'bleu'"]),
        ([HEADER, ROW.replace("25.8", "nan")], ["line 2", "'nan'"]),
        ([HEADER, ROW.replace("en-de", "en-fr")], ["line 2", "tiny.yaml has no pair 'en-fr'", "en-de, de-en"]),
        ([HEADER, ROW.replace("\ttiny", "\tbig")], ["line 2", "has no big.yaml", "it has tiny"]),
        ([HEADER, ROW.replace("shaw-k2", "alibi")], ["line 2", "no experiment 'alibi'", "sinusoidal"]),
        ([HEADER, ROW.replace("test\t", "dev\t")], ["line 2", "no test set 'dev'", "it has test"]),
    ],
)
def test_a_fault_is_one_sentence_with_file_and_line(recipe: Path, lines: list[str], words: list[str]) -> None:
    path = write_table(recipe, *lines)
    text = show(recipe).stderr
    assert text.startswith(f"Error: {path}")
    assert text.count("\n") == 1
    for word in words:
        assert word in text


def test_the_tables_are_named(recipe: Path) -> None:
    write_table(recipe, HEADER, ROW)
    assert "its tables are paper." in show(recipe, name="papre").stderr


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parents[1].name}/{path.stem}")
def test_the_shipped_tables_name_what_their_confs_have(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = path.parents[1]
    _, rows = read_table(folder, path.stem)
    monkeypatch.chdir(tmp_path)
    for name in {name for conf in folder.glob("*.yaml") for name in re.findall(r"\S+\.npy", conf.read_text())}:
        Path(name).parent.mkdir(parents=True, exist_ok=True)  # the user makes it
        np.save(name, np.zeros((1024, 128), np.float32))
    made = make_rows(rows, folder, call(tmp_path))
    assert len(make_plan([experiment for _, (experiment,) in made], ["train"]).experiment_jobs) == len(rows)
