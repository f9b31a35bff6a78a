"""All test sets together are scored and tested as one file with all their lines."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.cli import group
from posenc_experiments.evaluation.metrics import BLEU
from posenc_experiments.evaluation.results import Score, read_experiments
from posenc_experiments.evaluation.significance import difference, resample, sacrebleu_p
from posenc_experiments.evaluation.together import ALL_TESTS, all_tests
from tests.experiments.analysis.quickstart import make_experiments

SETTINGS = {"transformer_sinusoidal_tiny": 2, "transformer_diet_rel_tiny": 2}


def sacrebleu(directory: Path, test: str) -> list[dict[str, Any]]:
    """What SacreBLEU's command prints."""
    files = [str(directory / f"{test}.ref"), "-i", str(directory / f"{test}.hyp")]
    options = ["-m", "bleu", "chrf", "--confidence", "-f", "json", "-w", "2"]
    process = subprocess.run([sys.executable, "-m", "sacrebleu", *files, *options], check=True, capture_output=True)
    return list(json.loads(process.stdout))


def cut(directory: Path, test: str, first: int, last: int) -> None:
    """Makes a test set of some lines of `test`."""
    for kind in ("ref", "hyp"):
        lines = (directory / f"test.{kind}").read_text().splitlines(keepends=True)[first:last]
        (directory / f"{test}.{kind}").write_text("".join(lines))
    (directory / f"{test}.sacrebleu.json").write_text(json.dumps(sacrebleu(directory, test)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Experiments with the test set `test` and another of 100 lines of it."""
    root = make_experiments(tmp_path_factory.mktemp("made"), SETTINGS)
    for path in root.rglob("test.hyp"):
        cut(path.parent, "other", 50, 150)
    return root


@pytest.fixture(scope="module")
def joined(made: Path) -> Path:
    """The same experiments, with one test set that has the lines of both."""
    root = Path(shutil.copytree(made, made.parent / f"{made.name}-joined"))
    for path in list(root.rglob("test.hyp")):
        for kind in ("ref", "hyp"):
            both = "".join((path.parent / f"{test}.{kind}").read_text() for test in ("other", "test"))
            (path.parent / f"test.{kind}").write_text(both)
        (path.parent / "test.sacrebleu.json").write_text(json.dumps(sacrebleu(path.parent, "test")))
        (path.parent / "other.sacrebleu.json").unlink()
    return root


def by_setting(scores: list[Score]) -> dict[str, list[Score]]:
    return {name: [score for score in scores if score.name == name] for name in ("sinusoidal", "diet_rel")}


def test_scores_and_p_are_those_of_one_file(made: Path, joined: Path) -> None:
    found, wanted = by_setting(all_tests(read_experiments([made]))), by_setting(read_experiments([joined]))
    for name, scores in found.items():
        assert [round(score.bleu.score, 2) for score in scores] == [score.bleu.score for score in wanted[name]]
        intervals = [score.bleu.interval for score in wanted[name]]
        assert [score.bleu.interval for score in scores] == pytest.approx(intervals, abs=0.005)
        assert {score.bleu.signature for score in scores} == {score.bleu.signature for score in wanted[name]}
    ours, theirs = (
        [[resample(score, BLEU) for score in one[name]] for name in ("sinusoidal", "diet_rel")]
        for one in (found, wanted)
    )
    assert difference(ours[0], ours[1]) == difference(theirs[0], theirs[1])
    assert sacrebleu_p(ours[0][0], ours[1][0]) == sacrebleu_p(theirs[0][0], theirs[1][0]) < 1


def test_compare_adds_a_table(made: Path) -> None:
    result = CliRunner().invoke(group, ["compare", str(made), "--all-tests", "--baseline", "diet_rel"])
    assert result.exit_code == 0, result.output
    titles = [line for line in result.stdout.splitlines() if line.startswith("quickstart xa-xb ")]
    assert titles == [f"quickstart xa-xb {test}" for test in ("other", "test", ALL_TESTS)]
    words = ["compare", str(made), "--all-tests", "--seeds", "1", "--format", "csv"]
    rows = list(csv.DictReader(CliRunner().invoke(group, words).stdout.splitlines()))
    (row,) = (row for row in rows if (row["test"], row["experiment"]) == (ALL_TESTS, "sinusoidal"))
    assert (
        float(row["bleu"]) == all_tests([score for score in read_experiments([made]) if score.seed == 1])[1].bleu.score
    )
    assert row["chrf"] == ""


def test_one_test_set_is_refused(joined: Path) -> None:
    with pytest.raises(RecipeError, match=r"^--all-tests: no experiment here has several test sets: leave"):
        all_tests(read_experiments([joined]))


def test_other_test_sets_are_refused(made: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(made, tmp_path / "copy"))
    missing = next(root.rglob("transformer_sinusoidal_tiny/seed2"))
    (missing / "other.sacrebleu.json").unlink()
    with pytest.raises(RecipeError, match=rf"^--all-tests: .* has other, test, and {missing} has test: run the stages"):
        all_tests(read_experiments([root]))


def test_a_missing_reference_is_named(made: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(made, tmp_path / "copy"))
    missing = next(root.rglob("transformer_sinusoidal_tiny/seed2")) / "test.ref"
    missing.unlink()
    with pytest.raises(
        RecipeError, match=rf"^{missing} is missing, and --baseline and --all-tests need it: run its recipe"
    ):
        all_tests(read_experiments([root]))
