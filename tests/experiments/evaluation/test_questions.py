"""`compare --questions`: the verdicts of questions, files that are refused, and the pictures of differences."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from matplotlib.figure import Figure
from matplotlib.image import imread

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.evaluation.plots.forest import draw, limits
from posenc_experiments.evaluation.results import read_results
from posenc_experiments.evaluation.statistics.comparison import ComparedRow, answered
from posenc_experiments.evaluation.statistics.questions import read_questions
from tests.experiments.analysis.quickstart import make_experiments
from tests.experiments.tiny import run_here

TABLE = "quickstart xa-xb test"
QUESTIONS = f"""
margin: 20
questions:
  - question: "A. Do positions help?"
    rule: They do if both are above `nopos`.
    tables: [{TABLE}]
    comparisons: {{nopos: [sinusoidal, diet_rel], diet_rel: [sinusoidal]}}
  - question: "B. And vectors?"
    tables: [{TABLE}]
    comparisons: {{sinusoidal: [shaw-k2, shaw-k16]}}
  - question: C. One for later
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    seeds = {"sinusoidal_tiny": 3, "diet_rel_tiny": 3, "nopos_tiny": 2, "shaw_tiny-clipping-distance-2": 1}
    return make_experiments(tmp_path_factory.mktemp("made"), {f"transformer_{name}": n for name, n in seeds.items()})


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.yaml"
    path.write_text(QUESTIONS)
    return path


def compare(made: Path, *options: str | Path) -> Result:
    return run_here("compare", made, *options)


def rows_of(result: Result) -> list[dict[str, str]]:
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(io.StringIO(result.stdout)))


def test_each_question_is_corrected_for_its_comparisons(made: Path, questions: Path) -> None:
    rows = rows_of(compare(made, "--questions", questions, "--format", "csv"))
    keys = ("question", "experiment", "baseline", "comparisons", "verdict")
    assert [tuple(row[key] for key in keys) for row in rows] == [
        ("A. Do positions help?", "sinusoidal", "nopos", "3", "above"),
        ("A. Do positions help?", "diet_rel", "nopos", "3", "above"),
        ("A. Do positions help?", "sinusoidal", "diet_rel", "3", "equivalent"),
        ("B. And vectors?", "shaw-k2", "sinusoidal", "", ""),
    ]
    text = compare(made, "--questions", questions).stdout
    assert f"A. Do positions help? ({TABLE})" in text
    assert "Rule: They do if both are above `nopos`." in text
    assert "Without several seeds of both rows: 2 of 2 comparisons." in text
    assert "No experiment here is shaw-k16." in text
    assert "one seed" in text.split("B. And vectors?")[1]
    assert "One for later" not in text


def test_with_a_baseline_only_comparisons_of_questions_have_a_verdict(made: Path, questions: Path) -> None:
    """Also where the question has the baseline as a row."""
    by_question = {
        (row["experiment"], row["baseline"]): row
        for row in rows_of(compare(made, "--questions", questions, "--format", "csv"))
    }
    options = ("--baseline", "sinusoidal", "--questions", questions)
    by_name = {row["experiment"]: row for row in rows_of(compare(made, *options, "--format", "csv"))}
    assert {name: row["verdict"] for name, row in by_name.items()} == {
        **{"nopos": "below", "diet_rel": "equivalent"},
        **{"sinusoidal": "", "shaw-k2": ""},
    }
    for name in ("nopos", "diet_rel"):
        mirrored = by_question["sinusoidal", name]
        assert float(by_name[name]["verdict_low"]) == pytest.approx(-float(mirrored["verdict_high"]))
    alone = rows_of(compare(made, "--baseline", "sinusoidal", "--margin", "20", "--format", "csv"))
    assert {row["comparisons"] for row in alone} == {"", "2"}  # the table is one question


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("margin: 20", "margin: -1", "Expected `float` > 0.0"),
        ("rule:", "rules:", "unknown field `rules`"),
        ("diet_rel: [sinusoidal]", "nopos: [sinusoidal]", "duplicate key nopos"),
        ("diet_rel: [sinusoidal]", "sinusoidal: [nopos]", f"nopos and sinusoidal are compared twice on {TABLE}: leave"),
        ("diet_rel: [sinusoidal]", "diet_rel: [diet_rel]", "diet_rel is compared with itself: name another row."),
        ("questions:", "question:", "unknown field `question`"),
        ("- question", "question", "correct the file."),
        ("margin: 20", "margin: .inf", "Expected `float` < "),
        (
            "  - question: C.",
            "  - tables: [a]\n    question: C.",
            "'C. One for later' has tables or comparisons only: give both",
        ),
    ],
)
def test_a_file_that_is_none_is_refused(questions: Path, old: str, new: str, said: str) -> None:
    assert QUESTIONS.count(old)
    questions.write_text(QUESTIONS.replace(old, new, 1))
    with pytest.raises(RecipeError, match=r"--questions .*questions\.yaml") as error:
        read_questions(questions)
    assert said in str(error.value)


def test_questions_have_the_same_rows_whatever_else_is_compared(tmp_path: Path) -> None:
    """Names in questions are whole: flags that all rows share are part of them, and variants are told apart."""
    made = make_experiments(tmp_path / "made", {"transformer_sinusoidal_tiny": 2, "transformer_diet_rel_tiny": 3})
    for path in made.rglob("experiment.json"):
        about = json.loads(path.read_text())
        path.write_text(json.dumps(about | {"name": f"{about['name']} --lr 0.1"}))
    path = tmp_path / "questions.yaml"
    text = "questions: [{question: A, tables: [quickstart xa-xb test], comparisons: {sinusoidal: [diet_rel]}}]"
    path.write_text(text)
    result = compare(made, "--questions", path)
    assert "No experiment here is sinusoidal or diet_rel." in result.stdout
    path.write_text(text.replace("sinusoidal", "sinusoidal --lr 0.1").replace("diet_rel", "diet_rel --lr 0.1"))
    [row] = rows_of(compare(made, "--questions", path, "--format", "csv"))
    assert (row["experiment"], row["baseline"]) == ("diet_rel --lr 0.1", "sinusoidal --lr 0.1")
    for about in made.rglob("*diet_rel*/seed[23]/experiment.json"):
        about.write_text(about.read_text().replace('"made_from": {', '"made_from": {"dropout": 0.3, '))
    for options in ([], ["--baseline", "sinusoidal"]):
        result = compare(made, "--questions", path, *options)
        assert result.exit_code == 1
        assert "--questions: 'diet_rel --lr 0.1' is the name of diet_rel --lr 0.1 (" in result.stderr


def test_a_question_takes_another_metric(made: Path, questions: Path) -> None:
    questions.write_text(QUESTIONS.replace("margin: 20", "metric: chrF"))
    text = compare(made, "--questions", questions).stdout
    assert "chrF: nrefs:1" in text
    assert "equivalent" not in text
    questions.write_text(QUESTIONS.replace("margin: 20", "metric: bleu"))
    assert "--metric bleu: not all seeds of nopos have this score" in compare(made, "--questions", questions).stderr


def test_options_that_the_file_has_are_refused(made: Path, questions: Path) -> None:
    result = compare(made, "--questions", questions, "--baseline", "sinusoidal", "--margin", "1")
    assert result.exit_code != 0
    assert "its file has metric and margin." in result.output
    questions.write_text(QUESTIONS.replace(TABLE, "quickstart xa-xb valid"))
    result = compare(made, "--questions", questions)
    assert result.exit_code == 1
    assert f"no experiment here is of their tables (quickstart xa-xb valid); there are {TABLE}." in result.stderr


@pytest.mark.parametrize(("far", "end"), [(1.0, 0.0), (-1.0, -1.5), (-8.0, 0.0)])
def test_a_far_difference_does_not_take_the_axis(far: float, end: float) -> None:
    row: Any = None
    values = (0.9, 1.0, 1.0, 1.1, 1.1, 1.2, far)
    low, high = limits([ComparedRow(row, None, value, value - 0.5, value + 0.5) for value in values])
    assert end - 0.3 < low < end
    assert 1.7 < high < 2.0


def test_a_comparison_is_drawn_with_its_names_and_its_verdict(made: Path, questions: Path) -> None:
    answers = answered(read_results([made]), read_questions(questions))
    axes = Figure().subplots()
    draw(axes, "Do *they* cost $5 or $6?", answers[0].compared)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["sinusoidal − diet_rel", "diet_rel − nopos", "sinusoidal − nopos"]
    assert [text.get_text().split()[-1] for text in axes.texts] == ["equivalent", "above", "above"]
    assert axes.get_title(loc="left") == "Do *they* cost $5 or $6?"
    draw(axes, "", answers[1].compared)
    assert axes.texts[-1].get_text().endswith("  one seed")


def test_differences_are_drawn(made: Path, questions: Path, tmp_path: Path) -> None:
    """A row for each comparison, so the picture of more is higher; without a difference there is none."""
    heights = []
    for options in (["--questions", questions], ["--baseline", "sinusoidal"]):
        path = tmp_path / "forest.png"
        result = compare(made, *options, "--plot", path)
        assert (result.exit_code, result.stderr) == (0, f"Plot: {path}\n")
        heights.append(imread(path).shape[0])
    assert heights[0] > heights[1]
    directory = next(made.rglob("seed1"))
    result = compare(directory, "--baseline", "sinu", "--plot", tmp_path / "none.png")
    assert result.exit_code == 1
    assert not (tmp_path / "none.png").exists()
