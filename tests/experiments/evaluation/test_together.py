"""All test sets together are scored and tested as one file with all their lines."""

import csv
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sacrebleu import corpus_bleu, corpus_chrf

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.evaluation.metrics import ALL_TESTS, BLEU, BY_LENGTH
from posenc_experiments.evaluation.results import read_results, seal
from posenc_experiments.evaluation.statistics.pooling import pool
from posenc_experiments.evaluation.statistics.significance import (
    Difference,
    difference,
    jackknife,
    resample,
    sacrebleu_p,
)
from posenc_experiments.evaluation.statistics.together import parts_of_tests, together
from tests.experiments.analysis.quickstart import make_experiments
from tests.experiments.tiny import run_here

SETTINGS = {"transformer_sinusoidal_tiny": 2, "transformer_diet_rel_tiny": 2}


def sacrebleu(directory: Path, test: str) -> list[dict[str, Any]]:
    """What SacreBLEU's command prints, sealed as by the stage score."""
    files = [str(directory / f"{test}.ref"), "-i", str(directory / f"{test}.hyp")]
    options = ["-m", "bleu", "chrf", "--confidence", "-f", "json", "-w", "2"]
    process = subprocess.run([sys.executable, "-m", "sacrebleu", *files, *options], check=True, capture_output=True)
    return [{**row, "seal": seal(row)} for row in json.loads(process.stdout)]


def cut(directory: Path, test: str, first: int, last: int) -> None:
    """Makes a test set of some lines of `test`."""
    for kind in ("src", "ref", "hyp"):
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
        for kind in ("src", "ref", "hyp"):
            both = "".join((path.parent / f"{test}.{kind}").read_text() for test in ("other", "test"))
            (path.parent / f"test.{kind}").write_text(both)
        (path.parent / "test.sacrebleu.json").write_text(json.dumps(sacrebleu(path.parent, "test")))
        (path.parent / "other.sacrebleu.json").unlink()
    return root


def rows_of(*words: object) -> list[dict[str, str]]:
    """The rows of the CSV of `compare`, with `diet_rel` as the baseline."""
    result = run_here("compare", *words, "--baseline", "diet_rel", "--format", "csv")
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(result.stdout.splitlines()))


def test_scores_and_p_are_those_of_one_file(made: Path, joined: Path) -> None:
    parts, wanted = read_results([made]), read_results([joined])
    computed, whole = together(parts), wanted[wanted["metric"] == BLEU]
    assert list(computed["score"].round(2)) == list(whole["score"])
    assert list(computed["interval"]) == pytest.approx(list(whole["interval"]), abs=0.005)
    assert list(computed["signature"]) == list(whole["signature"])

    def tested(results: pd.DataFrame, test: str) -> tuple[Difference, float]:
        [rows] = pool(results[results["test"] == "test"])
        seeds = [row.directories for row in rows[:2]]
        baseline, row = ([jackknife(results, seed, test, BLEU) for seed in several] for several in seeds)
        return difference(baseline, row), sacrebleu_p(*(resample(results, first, test, BLEU) for first, *_ in seeds))

    assert tested(parts, ALL_TESTS) == tested(wanted, "test")
    assert 0 < tested(parts, ALL_TESTS)[1] < 1


def test_compare_adds_a_table(made: Path) -> None:
    rows = rows_of(made, "--all-tests")
    assert list(dict.fromkeys(row["test"] for row in rows)) == ["other", "test", ALL_TESTS]
    (row,) = (row for row in rows if (row["test"], row["experiment"]) == (ALL_TESTS, "sinusoidal"))
    whole = together(read_results([made]))
    assert float(row["bleu"]) == pytest.approx(whole[whole["name"] == "sinusoidal"]["score"].mean())
    assert (row["chrf"], float(row["difference"]) != 0) == ("", True)


def texts(directory: Path, test: str) -> list[list[str]]:
    """The sources, references and translations of a test set."""
    return [(directory / f"{test}.{kind}").read_text().splitlines() for kind in ("src", "ref", "hyp")]


def halves(directory: Path) -> list[list[tuple[str, ...]]]:
    """Sources, references and translations of the shorter and of the longer sources of both test sets."""
    lines = [line for test in ("other", "test") for line in zip(*texts(directory, test), strict=True)]
    median = statistics.median(len(source.split()) for source, _, _ in lines)
    return [[line for line in lines if (len(line[0].split()) > median) == longer] for longer in (False, True)]


def test_by_length_is_one_half_less_the_other(made: Path) -> None:
    rows = together(read_results([made]), test=BY_LENGTH)
    assert len(rows) == 4
    for row in rows.itertuples():
        scores = [
            corpus_bleu([line[2] for line in half], [[line[1] for line in half]]) for half in halves(row.directory)
        ]
        assert row.score == pytest.approx(scores[1].score - scores[0].score, abs=1e-4)


def test_by_length_finds_an_advantage_that_grows(made: Path, tmp_path: Path) -> None:
    """Where one setting translates longer sources perfectly, and the other all alike."""
    root = Path(shutil.copytree(made, tmp_path / "copy"))
    for directory in root.rglob("transformer_sinusoidal_tiny/seed*"):
        shorter = {source for source, _, _ in halves(directory)[0]}
        for test in ("other", "test"):
            lines = zip(*texts(directory, test), strict=True)
            better = [own if source in shorter else wanted for source, wanted, own in lines]
            (directory / f"{test}.hyp").write_text("".join(f"{line}\n" for line in better))
            (directory / f"{test}.sacrebleu.json").write_text(json.dumps(sacrebleu(directory, test)))
    rows = {(row["test"], row["experiment"]): row for row in rows_of(root, "--by-length")}
    row, baseline = (rows[BY_LENGTH, name] for name in ("sinusoidal", "diet_rel"))
    assert float(row["difference"]) == pytest.approx(float(row["bleu"]) - float(baseline["bleu"]))
    assert float(row["difference_low"]) > 0
    assert float(row["p_value"]) < 0.05


def test_sources_of_one_length_are_refused(made: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(made, tmp_path / "copy"))
    for path in root.rglob("*.src"):
        path.write_text("a b\n" * len(path.read_text().splitlines()))
        (path.with_suffix(".sacrebleu.json")).write_text(json.dumps(sacrebleu(path.parent, path.stem)))
    with pytest.raises(RecipeError, match=r"^--by-length: no source of xa-xb is longer than the median: leave"):
        together(read_results([root]), test=BY_LENGTH)


def test_by_length_has_no_pooled_variance_and_no_p_of_one_seed(made: Path) -> None:
    words = [*made.rglob("seed1"), "--by-length"]
    ours = [row for row in rows_of(*words) if row["experiment"] == "sinusoidal"]
    assert [(row["test"] == BY_LENGTH, row["one_seed_p_value"] == "") for row in ours] == [(False, False)] * 2 + [
        (True, True)
    ]
    result = run_here("compare", *words, "--baseline", "diet_rel", "--pool-variance")
    assert (result.exit_code, "exclude each other" in result.output) == (1, True)


def test_words_chooses_sentences_by_their_sources(made: Path) -> None:
    rows = rows_of(made, "--all-tests", "--words", "1-9 10- 10-", "--metric", "chrF")
    parts: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for encoding in ("sinusoidal", "diet_rel"):
        for seed in made.rglob(f"*_{encoding}_*/seed*"):
            by_test = {test: list(zip(*texts(seed, test), strict=True)) for test in ("other", "test")}
            by_test[ALL_TESTS] = by_test["other"] + by_test["test"]
            for test, lines in by_test.items():
                for name in ("1-9", "10-"):
                    chosen = [line for line in lines if (len(line[0].split()) < 10) == (name == "1-9")]
                    part = f"{test}, {name} words, {len(chosen)} of {len(lines)} sentences"
                    sides = [line[2] for line in chosen], [[line[1] for line in chosen]]
                    scores = corpus_bleu(*sides).score, corpus_chrf(*sides).score
                    parts.setdefault((part, encoding), []).append(scores)
    assert {(row["test"], row["experiment"]) for row in rows if ", " in row["test"]} == set(parts)
    for row in rows:
        if scored := parts.get((row["test"], row["experiment"])):
            means = [statistics.fmean(seeds) for seeds in zip(*scored, strict=True)]
            assert [float(row["bleu"]), float(row["chrf"])] == pytest.approx(means, abs=1e-4)
            assert bool(row["p_value"]) == (row["experiment"] == "sinusoidal")
    assert (parts_of_tests(read_results([made]), BLEU, "10-")["interval"] > 0).all()
    all_tests = {row["experiment"]: float(row["bleu"]) for row in rows if row["test"] == ALL_TESTS}
    assert all_tests == pytest.approx(dict(together(read_results([made])).groupby("name")["score"].mean()))


@pytest.mark.parametrize(
    ("words", "message"),
    [("1-9 x", "'x' is not a range"), ("", "'' is not a range"), ("1-9 9-1", "no source here has 9-1 words")],
)
def test_words_that_choose_nothing_are_refused(made: Path, words: str, message: str) -> None:
    result = run_here("compare", made, "--words", words)
    assert (result.exit_code, "--words: " in result.output, message in result.output) == (1, True, True)


def test_one_test_set_is_refused(joined: Path) -> None:
    with pytest.raises(RecipeError, match=r"^--all-tests: no experiment here has several test sets: leave"):
        together(read_results([joined]))


def test_other_test_sets_are_refused(made: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(made, tmp_path / "copy"))
    missing = next(root.rglob("transformer_sinusoidal_tiny/seed2"))
    (missing / "other.sacrebleu.json").unlink()
    with pytest.raises(RecipeError, match=f"^{missing} has no score of other: score it, or leave this out"):
        together(read_results([root]))
