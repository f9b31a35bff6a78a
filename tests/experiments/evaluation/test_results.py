"""Reading, pooling, tables and plots, from the quickstart's kept translations."""

import io
import json
import math
import os
import re
import shutil
import statistics
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import Result
from matplotlib.figure import Figure

import posenc_experiments
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import file_hash
from posenc_experiments.evaluation.metrics import BLEU, CHRF
from posenc_experiments.evaluation.plots import clipping as plot
from posenc_experiments.evaluation.plots.colours import colour_of, encoding_in, styles
from posenc_experiments.evaluation.results import read_results, seal
from posenc_experiments.evaluation.statistics.comparison import ComparedTable, Comparison, compared_with_baseline
from posenc_experiments.evaluation.statistics.pooling import (
    PooledRow,
    PooledScore,
    Setting,
    pool,
    split_shared,
    with_seeds,
)
from posenc_experiments.evaluation.tables.comparisons import report
from posenc_experiments.experiment.versions import all_environments
from tests import forked
from tests.experiments.analysis.quickstart import make_experiments, seed1
from tests.experiments.tiny import run_here

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = {
    "transformer_shaw_tiny-clipping-distance-0": 1,
    "transformer_shaw_tiny-clipping-distance-2": 1,
    "transformer_sinusoidal_tiny": 2,
}
DATA = "sha256:780a450906"  # of the training data


def write_scores(directory: Path, rows: list[dict[str, Any]]) -> None:
    """Writes scores as the stage score does, with hashes of the scored files and of the scores."""
    hashes = {
        key: file_hash(directory / f"test.{kind}") for kind, key in (("hyp", "hypotheses"), ("ref", "references"))
    }
    rows = [{**row, **hashes} for row in rows]
    (directory / "test.sacrebleu.json").write_text(json.dumps([{**row, "seal": seal(row)} for row in rows]))


def score_again(directory: Path, old: str = "", new: str = "") -> None:
    """Writes the scores of a directory again, with the hashes of its files now, and a text in place of another."""
    text = (directory / "test.sacrebleu.json").read_text()
    write_scores(directory, json.loads(text.replace(old, new) if old else text))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_experiments(tmp_path_factory.mktemp("experiments"), SETTINGS)


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A copy of the experiments, which a test may damage."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


def seeds(root: Path) -> list[Path]:
    """The directories of both seeds of `sinusoidal`."""
    return sorted(root.rglob("*sinusoidal*/seed*"))


def pooled(*paths: Path) -> list[PooledRow]:
    """The rows of the only table."""
    [rows] = pool(read_results(paths))
    return rows


def compared(*paths: Path, baseline: str, **how: Any) -> list[ComparedTable]:
    return compared_with_baseline(read_results(paths), baseline, Comparison(**how))


def text_of(*paths: Path, style: str = "text", **how: Any) -> str:
    return report(compared(*paths, **how) if how else pool(read_results(paths))).format(style)


def csv_of(*paths: Path, **how: Any) -> list[dict[str, str]]:
    """The rows of the CSV, as text."""
    text = io.StringIO(text_of(*paths, style="csv", **how))
    return list(pd.read_csv(text, dtype=str, keep_default_na=False).to_dict("records"))


def names_of(*paths: Path) -> list[str]:
    return [row.shown for row in pooled(*paths)]


def untested(table: ComparedTable) -> list[bool]:
    return [row.difference is None for row in table.rows]


def compare(*words: str | Path) -> Result:
    return run_here("compare", *words)


def change(experiment: Path, *path: str | int, value: object) -> None:
    """Changes a value in experiment.json."""
    about = json.loads((experiment / "experiment.json").read_text())
    here = about
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    (experiment / "experiment.json").write_text(json.dumps(about))


def reported(directory: Path, metric: int = 0) -> dict[str, Any]:
    """The output of SacreBLEU."""
    score: dict[str, Any] = json.loads((directory / "test.sacrebleu.json").read_text())[metric]
    return score


# reading and pooling


def test_results_are_a_row_for_each_experiment_seed_test_set_and_metric(made: Path) -> None:
    rows = posenc_experiments.read_results(made)
    assert [(row.name, row.seed, row.metric) for row in rows.itertuples()] == [
        (name, seed, metric)
        for name, seed in (("shaw-k0", 1), ("shaw-k2", 1), ("sinusoidal", 1), ("sinusoidal", 2))
        for metric in (BLEU, CHRF)
    ]
    assert list(rows["--clipping-distance"].dropna()) == [0, 0, 2, 2]
    means = rows.groupby(["metric", "name"])["score"].mean()
    assert means[CHRF, "shaw-k2"] == reported(seed1(made, "distance-2"), 1)["score"]


def test_seeds_are_pooled(made: Path) -> None:
    rows = pooled(made)
    assert [row.setting.name for row in rows] == ["shaw-k0", "shaw-k2", "sinusoidal"]
    shaw = reported(seed1(made, "distance-2"))
    assert rows[1].bleu == PooledScore(shaw["score"], shaw["confidence_var"], None, shaw["signature"])
    scores = [reported(path)["score"] for path in seeds(made)]
    assert rows[2].bleu.mean == pytest.approx(statistics.fmean(scores))
    assert rows[2].bleu.spread == pytest.approx(abs(scores[0] - scores[1]) / 2**0.5)
    speeds = [json.loads((path / "training.json").read_text())["words_per_second"] for path in seeds(made)]
    assert (rows[2].bleu.interval, rows[2].words_per_second) == (None, statistics.fmean(speeds))


def test_found_experiments_are_sorted_and_named_ones_keep_their_order(made: Path, tmp_path: Path) -> None:
    wanted = []
    for value in (2, 4, 16):
        directory = tmp_path / f"transformer_shaw_tiny-clipping-distance-{value}/seed1"
        shutil.copytree(seed1(made, "distance-2"), directory)
        change(directory, "flags", value={"clipping-distance": value})
        change(directory, "name", value=f"shaw-k{value}")
        wanted.append(directory)
    assert [row.flags.split()[1] for row in pooled(tmp_path)] == ["2", "4", "16"]
    named = read_results([wanted[2], wanted[1], tmp_path, wanted[2]])
    assert list(dict.fromkeys(named["directory"]))[:2] == [wanted[2], wanted[1]]
    assert len(named) == len(read_results([tmp_path]))


@pytest.mark.parametrize(
    ("path", "value", "variants"),
    [
        (("made_from", "training", "patience"), 3, ["training patience the default", "training patience 3"]),
        (  # another member of the same archive
            ("made_from", "data", "train", 0, "xa"),
            [f"{DATA}{54 * '1'} b.xa"],
            [f"data train xa {DATA}", f"data train xa {DATA} b.xa"],
        ),
        (("environment", "batch"), "3 x --max-tokens 133", ["batch the default", "batch 3 x --max-tokens 133"]),
        (("environment", "precision"), "bf16", ["precision the default", "precision bf16"]),
    ],
)
def test_seeds_with_different_settings_are_separate_rows(
    copy: Path, path: tuple[str | int, ...], value: object, variants: list[str]
) -> None:
    first, second = seeds(copy)
    change(second, *path, value=value)
    names = [f"sinusoidal ({variant})" for variant in variants]
    assert names_of(copy) == ["shaw-k0", "shaw-k2", *names]
    assert [row["experiment"] for row in csv_of(copy)][2:] == names
    with pytest.raises(RecipeError, match="several rows have this in their name"):
        compared(copy, baseline="sinusoidal")
    [table] = compared(copy, baseline=names[1])
    assert untested(table) == [False, False, False, True]
    change(first, *path, value=value)
    assert len(pooled(copy)) == 3


def test_a_seed_counts_once(copy: Path) -> None:
    assert len(read_results([copy, seed1(copy, "distance-2"), copy])) == 8
    shutil.copytree(seed1(copy, "distance-2"), copy / "again")
    with pytest.raises(RecipeError, match="are the same setting and seed: name one of them"):
        pooled(copy)


def test_seeds_are_chosen(made: Path) -> None:
    """Rows keep the chosen seeds only; those that lack one are left out, by name."""
    chosen, lacking = with_seeds(read_results([made]), [1])
    assert (set(chosen["seed"]), len(chosen), lacking) == ({1}, 6, [])
    result = compare(made, "--seeds", "2,1", "--format", "csv")
    assert [line.split(",")[4:8:3] for line in result.stdout.splitlines()[1:]] == [["sinusoidal", "1 2"]]
    assert result.stderr == "Left out, because they lack one of the seeds 2,1: shaw-k0, shaw-k2.\n"
    result = compare(made, "--seeds", "3")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "--seeds 3: no experiment here has all of them; there are 1, 2." in result.stderr


# tables


def test_text_and_markdown_show_the_numbers_and_the_signature(made: Path) -> None:
    bleu, chrf = reported(seed1(made, "distance-2")), reported(seed1(made, "distance-2"), 1)
    for style in ("text", "markdown"):
        text = text_of(made, style=style)
        line = next(line for line in text.split("\n") if "shaw-k2" in line)
        words = f"{bleu['score']:.2f} ± {bleu['confidence_var']:.2f}"
        assert all(word in line for word in (words, f"{chrf['score']:.2f}", "310,528", "11,188"))
        assert f"BLEU: {bleu['signature']}" in text
        assert "standard deviation over the seeds" in text
        assert "Warning" not in text


def test_p_of_one_seed_is_that_of_sacrebleus_own_command(made: Path) -> None:
    baseline, system = seed1(made, "sinusoidal"), seed1(made, "distance-2")
    files: list[str | Path] = [baseline / "test.ref", "-i", baseline / "test.hyp", system / "test.hyp"]
    words = [*map(str, files), "-m", "bleu", "--paired-bs", "-f", "json"]
    process = forked.run("sacrebleu", words, None, os.environ)
    assert process.returncode == 0, process.stderr
    wanted = next(row for row in json.loads(process.stdout) if "distance-2" in row["system"])["BLEU"]["p_value"]
    [table] = compared(system, baseline, baseline="sinusoidal")
    assert table.rows[0].one_seed_p_value == pytest.approx(wanted)
    assert (table.rows[0].p_value, table.rows[1].difference) == (None, None)
    text = report([table]).format("text")
    assert f"{wanted:.3f}" in text
    assert "*" not in text.splitlines()[4]  # no star without a test of the settings


def test_seeds_with_different_code_or_libraries_are_pooled_with_a_note(copy: Path) -> None:
    before = json.loads((seeds(copy)[0] / "experiment.json").read_text())["environment"]
    now = {**before, "commit": "b" * 40, "changed": True}
    resumed = all_environments(before, now)
    assert all_environments(resumed, now) == resumed
    change(seeds(copy)[0], "environment", value=resumed)
    text = text_of(copy)
    note = f"sinusoidal was trained with different code, libraries or devices: commit ({before['commit'][:10]}, bbbb"
    assert note in text
    assert "torch (" not in text


def test_hidden_differences_between_rows_are_noted(copy: Path) -> None:
    warning = "Warning: rows differ in more than their names say, "
    zero, two = seed1(copy, "distance-0"), seed1(copy, "distance-2")
    change(two, "made_from", "training", "lr", value=[0.006, 0.03])
    assert f"{warning}training lr 2 (the default: shaw-k0, sinusoidal; 0.03: shaw-k2).\n" in text_of(copy)
    change(two, "made_from", "training", "lr", value=[0.03])
    change(zero, "made_from", "training", "segment_separator", value="x")
    text = text_of(copy)
    assert f"{warning}training lr (0.006: shaw-k0, sinusoidal; 0.03: shaw-k2).\n" in text
    assert f"{warning}training segment_separator (x: shaw-k0; the default: shaw-k2, sinusoidal).\n" in text
    assert text.count(warning) == 2
    # differences that flags show need no warning
    change(two, "flags", "lr", value=0.03)
    change(zero, "flags", "segment-separator", value="x")
    assert warning not in text_of(copy)
    # `auto` is the number of --max-update
    change(two, "flags", "max-update", value=400)
    change(two, "made_from", "training", "total_num_update", value=400)
    assert warning not in text_of(copy)
    change(two, "made_from", "training", "total_num_update", value=40)
    assert f"{warning}training total_num_update" in text_of(copy)


def give_setup(experiment: Path, setup: str, root: Path, points: float) -> None:
    """Copies an experiment to another setup, and adds this number of BLEU points."""
    directory = Path(shutil.copytree(experiment, root / setup / experiment.parent.name / experiment.name))
    change(directory, "setup", value=setup)
    scores = json.loads((directory / "test.sacrebleu.json").read_text())
    scores[0]["score"] += points
    write_scores(directory, scores)


def test_setups_are_separate_rows_of_one_table(made: Path, tmp_path: Path) -> None:
    for name in ("distance-2", "sinusoidal"):
        for points, setup in ((1, "base"), (2, "big")):
            give_setup(seed1(made, name), setup, tmp_path / name, points)
    assert names_of(tmp_path) == ["base shaw-k2", "big shaw-k2", "base sinusoidal", "big sinusoidal"]
    scores = [row.bleu for row in pooled(tmp_path)]
    assert scores[1].mean == pytest.approx(scores[0].mean + 1)
    assert not any(score.spread for score in scores)  # not seeds of one setting
    rows = csv_of(tmp_path)[:2]
    assert [(row["setup"], row["experiment"]) for row in rows] == [("base", "shaw-k2"), ("big", "shaw-k2")]
    assert names_of(tmp_path / "distance-2" / "base") == ["shaw-k2"]  # a single setup is not shown
    with pytest.raises(RecipeError, match=r"--baseline sinusoidal: several .* base sinusoidal, big sinusoidal"):
        compared(tmp_path, baseline="sinusoidal")
    [table] = compared(tmp_path, baseline="big sinusoidal")
    assert untested(table) == [False, False, False, True]


def rename(experiment: Path, flags: str) -> None:
    """Gives a result flags as --set does, in its name and beside it."""
    about = json.loads((experiment / "experiment.json").read_text())
    change(experiment, "name", value=f"{about['name']} {flags}")
    for flag in flags.split("--")[1:]:
        name, _, value = flag.strip().partition(" ")
        change(experiment, "flags", name, value=value)


def test_a_baseline_is_of_every_corpus_that_has_its_name(copy: Path) -> None:
    """Whole names are those of each table by themselves: one corpus has flags that all of its rows share."""
    for path in list(copy.rglob("seed*")):
        elsewhere = Path(shutil.copytree(path, path.parent.with_name(f"{path.parent.name}-other") / path.name))
        rename(elsewhere, "--lr 0.1")
        change(elsewhere, "corpus", value="other")
    rows = [row for table in compared(copy, baseline="sinusoidal") for row in table.rows]
    assert [row.row.setting.corpus for row in rows if row.is_baseline] == ["quickstart", "other"]


def test_a_record_in_an_archive_is_named_by_the_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "kept.zip", "w") as archive:
        archive.writestr("seed1/experiment.json", "{}")
    result = run_here("compare", tmp_path)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {tmp_path}/kept.zip/seed1/experiment.json is damaged")


def test_flags_that_all_rows_share_stand_once_above_the_table(copy: Path) -> None:
    for path in copy.rglob("seed*"):
        rename(path, "--lr 0.1 --adam-betas (0.9, 0.98)" + (" --dropout 0" if "distance-2" in str(path) else ""))
    for style, begin in (("text", ""), ("markdown", "**"), ("latex", "% ")):
        text = text_of(copy, style=style)
        assert f"\n{begin.replace('**', '')}All rows: --lr 0.1 --adam-betas (0.9, 0.98)" in text
        assert text.count("--lr") == text.count("adam-betas") == 1
    rows = pooled(copy)
    assert [row.shown for row in rows] == ["shaw-k0", "shaw-k2 --dropout 0", "sinusoidal"]
    assert rows[2].setting.name == "sinusoidal --lr 0.1 --adam-betas (0.9, 0.98)"
    assert sorted(drawn(rows)[1]) == ["shaw-k0", "shaw-k2 --dropout 0", "sinusoidal"]
    alike = [replace(row, flags=row.flags.replace(" --dropout 0", "")) for row in rows]
    assert sorted(drawn(alike)[1]) == ["shaw", "sinusoidal"]


def test_names_that_differ_in_the_order_of_their_flags_stay_whole() -> None:
    names = ["a --x 1 --y 2", "a --y 2 --x 1"]
    assert split_shared(names) == (names, "")


def test_a_baseline_is_named_by_any_part_that_one_row_has(copy: Path) -> None:
    for path in copy.rglob("seed*"):
        rename(path, "--lr 0.1")
    rename(seed1(copy, "distance-0"), "--dropout 0")
    tested = "difference: BLEU less that of sinusoidal."
    for name in ("sinusoidal", "sinusoidal --lr 0.1", "nus"):
        assert tested in text_of(copy, baseline=name)
    assert "less that of shaw-k0 --dropout 0." in text_of(copy, baseline="drop")
    with pytest.raises(
        RecipeError, match=r"--baseline shaw: several .* name; name one of shaw-k0 --dropout 0, shaw-k2\.$"
    ):
        compared(copy, baseline="shaw")
    with pytest.raises(RecipeError, match=r"--baseline shwa-k2: .* here \(did you mean shaw-k2\?\); there are shaw-k0"):
        compared(copy, baseline="shwa-k2")
    change(seed1(copy, "distance-0"), "name", value="shaw --lr 0.1")
    assert "less that of shaw." in text_of(copy, baseline="shaw")  # an exact name wins


def test_scores_that_cannot_be_verified_are_shown_and_marked(copy: Path) -> None:
    (seed1(copy, "distance-0") / "test.hyp").unlink()
    scores = json.loads((seed1(copy, "sinusoidal") / "test.sacrebleu.json").read_text())
    write_scores(seed1(copy, "sinusoidal"), [row | {"reference": "sacrebleu -t wmt14/full -l en-de"} for row in scores])
    text = text_of(copy)
    assert "Not verified: shaw-k0; " in text
    assert text.count("Reference: sacrebleu -t wmt14/full -l en-de\n") == 1
    assert [row["verified"] for row in csv_of(copy)] == ["no", "yes", "yes"]


def give_scores(directory: Path, metric: str, mean: float, test: str = "test") -> None:
    """Writes the scores of another tool."""
    lines = (directory / f"{test}.hyp").read_text().count("\n")
    (directory / f"{test}.{metric}.scores").write_text(f"# {metric} 1.0\n" + f"{mean}\n" * lines)


def test_a_metric_that_some_seeds_lack_says_how_many_have_it(copy: Path) -> None:
    give_scores(seeds(copy)[1], "COMET", 0.7)
    text = text_of(copy)
    assert re.search(r"^sinusoidal +2 .* 0.70 \(1 of 2 seeds\) ", text, re.MULTILINE)
    assert "(... of ... seeds): the mean of the seeds that have COMET; the others lack it.\n" in text
    assert [row["metric:COMET seeds"] for row in csv_of(copy)] == ["", "", "1"]
    give_scores(seeds(copy)[0], "COMET", 0.5)
    assert "0.60 " in (text := text_of(copy))
    assert "of 2 seeds" not in text
    # only the baseline has the metric: no row can be tested, and the note says so
    text = text_of(copy, baseline="sinusoidal", metric="COMET")
    assert "Not tested, because not all seeds have COMET: shaw-k0, shaw-k2.\n" in text


@pytest.mark.parametrize(
    "metric", ["seeds", "shown", "parameters", "signature", "BLEU_signature", "difference", "comet", "metric"]
)
def test_a_metric_may_have_the_name_of_a_column(copy: Path, metric: str) -> None:
    for number, directory in enumerate(seeds(copy)):
        give_scores(directory, metric, 0.25 + number)
    text = text_of(copy, baseline="sinusoidal", metric=metric)
    line = next(line for line in text.splitlines() if line.startswith("sinusoidal"))
    assert re.search(r" 2 .* 0.75 ± 0.71 .* baseline .* 307,968 ", line)
    assert f"\n{metric}: {metric} 1.0\n" in text
    header = text.splitlines()[2].split("  ")
    assert len([cell for cell in header if cell.strip() == metric]) == 1
    row = csv_of(copy)[2]
    assert (row[f"metric:{metric}"], row[f"metric:{metric} signature"]) == ("0.75", f"{metric} 1.0")
    assert (row["seeds"], row["parameters"], row["bleu_signature"][:6]) == ("1 2", "307968", "nrefs:")


def test_scores_are_of_the_test_set_with_the_longest_name(copy: Path) -> None:
    """Names may hold dots: `test.b.COMET.scores` is of `test.b`, even if that is translated only."""
    directory = seed1(copy, "distance-2")
    shutil.copy(directory / "test.hyp", directory / "test.b.hyp")
    give_scores(directory, "COMET", 0.1, "test.b")
    give_scores(directory, "v2.COMET", 0.2)
    assert list(read_results([directory])["metric"]) == [BLEU, CHRF, "v2.COMET"]
    shutil.copy(directory / "test.sacrebleu.json", directory / "test.b.sacrebleu.json")
    rows = read_results([directory])[["test", "metric", "score"]].iloc[2:]
    assert ["test.b", "COMET", pytest.approx(0.1)] in rows.to_numpy().tolist()
    assert len(rows) == 4


@pytest.mark.parametrize("name", ["=1+2", "+1 1", "-1 1", "@SUM(1)", "--sum(A1)", "=cmd|' /C calc'!A0"])
def test_no_cell_of_the_csv_is_a_formula(copy: Path, name: str) -> None:
    change(seed1(copy, "distance-2"), "name", value=name)
    row = csv_of(copy, baseline="shaw-k0")[1]
    assert row["experiment"] == f"'{name}"
    assert float(row["bleu"]) > 0
    assert row["flags"] == "--clipping-distance 2"
    change(seed1(copy, "distance-2"), "name", value="-0.5")
    assert csv_of(copy)[1]["experiment"] == "-0.5"


def test_names_end_neither_a_cell_nor_a_line(copy: Path) -> None:
    change(seed1(copy, "distance-2"), "name", value="a|b<img src=x>\n&lt;c")
    change(seed1(copy, "distance-2"), "corpus", value="quick\n<b>start")
    (seed1(copy, "distance-2") / "test.hyp").unlink()
    text = text_of(seed1(copy, "distance-2"), style="markdown")
    assert text.startswith("**quick &lt;b>start xa-xb test**\n\n| experiment ")
    assert "\n| a&#124;b&lt;img src=x> &amp;lt;c |" in text
    assert "\n- Not verified: a|b&lt;img src=x> &amp;lt;c; " in text
    assert "\na|b<img src=x> &lt;c  " in text_of(seed1(copy, "distance-2"))


def test_missing_scores_are_noted(copy: Path) -> None:
    """A seed without scores, or without those of one test set."""
    first, second = seeds(copy)
    shutil.copy(first / "test.hyp", first / "other.hyp")
    shutil.copy(first / "test.sacrebleu.json", first / "other.sacrebleu.json")
    assert compare(copy).stderr == f"Note: {second} has no scores of other, which another seed has.\n"
    (second / "test.sacrebleu.json").unlink()
    result = compare(copy)
    assert (result.exit_code, result.stderr) == (0, f"Note: left out, because they have no scores: {second}.\n")


# refusals


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("experiment.json", '{"corpus": "tiny", "pa', "JSON"),
        ("experiment.json", '{"corpus": "tiny"}', "old version"),
        ("training.json", "3", "damaged"),
        ("test.sacrebleu.json", '[{"name": "BLEU", "score": 1, "signature": "s"}]', "score again"),
        ("test.historical.json", '["BLEU"]', "score again"),
        ("test.COMET.scores", "0.5\n", "line 1"),
        ("test.COMET.scores", "# comet\nx\n", "each line after it one number"),
        ("test.COMET.scores", "# comet\n1\n", "1 scores"),
        ("test.COMET.scores", "# comet\n1e308\n1e308\n", "each line after it one number"),
        ("test.BLEU.scores", "# x\n1\n", "give the file another name"),
        ("test.tok. BLEU.scores", "# x\n1\n", "give the file another name"),
        ("test.BLEU signature.scores", "# x\n1\n", "give the file another name"),
    ],
)
def test_a_damaged_file_is_one_sentence(copy: Path, name: str, content: str, words: str) -> None:
    path = seed1(copy, "distance-2") / name
    path.write_text(content)
    with pytest.raises(RecipeError) as error:
        read_results([copy])
    assert str(error.value).startswith(str(path))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("seed",), "x", "`$.seed`"),
        (("seed",), math.nan, "`$.seed`"),
        (("seed",), 1.5, "`$.seed`"),
        (("seed",), 1 << 70, "`$.seed`"),
        (("pair",), "xaxb", "`$.pair`"),
        (("flags",), [], "`$.flags`"),
        (("flags", "clipping-distance"), [2], "`$.flags[...]`"),
        (("made_from", "prepare"), 3, "`$.made_from.prepare`"),
    ],
)
def test_a_field_of_another_type_is_one_sentence(copy: Path, path: tuple[str, ...], value: object, words: str) -> None:
    change(seed1(copy, "distance-2"), *path, value=value)
    result = compare(copy)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert result.stderr.startswith(f"Error: {seed1(copy, 'distance-2') / 'experiment.json'} is ")
    assert words in result.stderr


@pytest.mark.parametrize(
    ("metric", "change_of", "words"),
    [
        (0, {"score": 1e308}, "`$[0].score`"),
        (0, {"score": "41"}, "`$[0].score`"),
        (0, {"confidence_var": math.nan}, "`$[0].confidence_var`"),
        (0, {"translation": 3}, "`$[0].translation`"),
        (0, {"name": "chrF2"}, "BLEU"),
        (1, {"signature": None}, "`$[1].signature`"),
    ],
)
def test_a_score_of_another_type_is_one_sentence(
    copy: Path, metric: int, change_of: dict[str, object], words: str
) -> None:
    for directory in seeds(copy):
        scores = json.loads((directory / "test.sacrebleu.json").read_text())
        scores[metric] |= change_of
        write_scores(directory, scores)
    result = compare(copy)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert result.stderr.startswith(f"Error: {seeds(copy)[0] / 'test.sacrebleu.json'} is ")
    assert words in result.stderr


def test_a_test_set_with_a_blank_in_its_name_is_refused(copy: Path) -> None:
    """Names with a blank are those of parts of test sets and of all of them together."""
    for file in seed1(copy, "distance-2").glob("test.*"):
        file.rename(file.with_name(file.name.replace("test", "news, 2014")))
    result = compare(seed1(copy, "distance-2"), seed1(copy, "sinusoidal"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "news, 2014.sacrebleu.json: a test set's name has no blanks: rename its files." in result.stderr


@pytest.mark.parametrize("kind", ["hyp", "ref"])
def test_scores_of_changed_files_are_refused(copy: Path, kind: str) -> None:
    file = seed1(copy, "distance-2") / f"test.{kind}"
    file.write_text("x" + file.read_text())
    with pytest.raises(RecipeError) as error:
        read_results([copy])
    assert str(error.value).startswith(f"{file} is not the file that was scored")


def test_other_references_are_refused_without_a_baseline_too(copy: Path) -> None:
    reference = seed1(copy, "distance-2") / "test.ref"
    reference.write_text("x" + reference.read_text())
    score_again(reference.parent)
    for missing in (False, True):
        if missing:
            reference.unlink()  # the recorded hash suffices
        with pytest.raises(RecipeError, match="have different references for test: they cannot be compared"):
            pooled(copy)


def test_differing_signatures_are_refused(copy: Path) -> None:
    score_again(seed1(copy, "distance-2"), "nw:0", "nw:2")
    result = compare(copy, "--format", "csv")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert "chrF signatures" in result.stderr


def test_names_of_nothing_are_refused(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for words, message in (
        ([tmp_path / "nowhere"], "nowhere is not a directory"),
        ([tmp_path / "empty"], "empty holds no scored experiment"),
        ([copy, "--baseline", "alibi"], "--baseline alibi: there is no such experiment here; there are shaw-k0, shaw"),
        ([copy, "--plot", tmp_path / "plot.xyz"], "plot.xyz: there is no format '.xyz' of plots: end it in"),
    ):
        result = compare(*words)
        assert result.exit_code == 1
        assert message in result.stderr


def test_missing_references_are_those_of_the_prepared_data(copy: Path, tmp_path: Path) -> None:
    options: list[str | Path] = [copy, "--seeds", "1", "--baseline", "sinusoidal", "--format", "csv"]
    wanted = compare(*options).stdout
    prepared = tmp_path / "data" / "quickstart" / "xa-xb" / "prepared"
    prepared.mkdir(parents=True)
    for reference in list(copy.rglob("test.ref")):
        reference.replace(prepared / "test.xb")
    result = compare(*options)
    assert "test.ref is missing: run the stages translate and score" in result.stderr
    options += ["--data-dir", tmp_path / "data"]
    assert compare(*options).stdout == wanted
    (prepared / "test.xb").write_text("another text\n")
    result = compare(*options)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {prepared / 'test.xb'} is not the file that was scored")


# the plot and the command


def drawn(rows: list[PooledRow]) -> tuple[list[Any], dict[str, Any]]:
    """The axes of the only panel of these rows, and the handles of its legend."""
    figure: Any = Figure()
    panel = plot.points_of(rows)
    handles = plot.draw(figure, panel, plot.series_styles([panel]))
    return figure.axes, handles


def at_distances(made: Path, scores: dict[int | None, float]) -> list[PooledRow]:
    """Rows of `shaw` at clipping distances, and of `sinusoidal` at None, with these scores."""
    clipped, *_, sinusoidal = pooled(made)
    return [
        replace(
            sinusoidal if distance is None else replace(clipped, flags=f"--clipping-distance {distance}"),
            scores={BLEU: PooledScore(score, 0.1)},
        )
        for distance, score in scores.items()
    ]


def test_the_plot_draws_bleu_against_the_distance_and_others_as_lines(made: Path, tmp_path: Path) -> None:
    [axes], handles = drawn(at_distances(made, {1: 30, 2: 31, 4: 31.5, None: 30.5}))
    assert list(handles) == ["shaw", "sinusoidal"]
    curve = handles["shaw"].lines[0]
    assert list(curve.get_xdata()) == [1, 2, 3]
    assert list(curve.get_ydata()) == [30, 31, 31.5]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "4"]
    assert set(handles["sinusoidal"].get_ydata()) == {30.5}
    [band] = axes.patches
    assert (band.get_y(), band.get_height()) == (pytest.approx(30.4), pytest.approx(0.2))
    result = compare(made, "--plot", tmp_path / "plot.svg")
    assert (result.exit_code, result.stderr) == (0, f"Plot: {tmp_path / 'plot.svg'}\n")
    assert (tmp_path / "plot.svg").is_file()


def test_a_score_far_below_the_others_stands_below_a_break_of_the_axis(made: Path) -> None:
    (upper, lower), _ = drawn(at_distances(made, {0: 22, 1: 30, 2: 31, None: 30.5}))
    assert lower.get_ylim()[0] < 22 < lower.get_ylim()[1] < upper.get_ylim()[0] < 30
    assert len(drawn(at_distances(made, {0: 29.5, 1: 30, 2: 31, None: 30.5}))[0]) == 1


def test_a_single_distance_is_a_point_and_no_line(made: Path) -> None:
    """So is the default distance of an encoding; points at one distance stand beside each other."""
    rows = at_distances(made, {1: 30, 2: 31, 128: 31.5})
    rows[2] = replace(rows[2], shown="diet_rel", encoding="diet_rel", flags="")
    _, handles = drawn(rows)
    point = handles["diet_rel"].lines[0]
    assert (list(point.get_xdata()), point.get_linestyle()) == ([8], "None")
    rows[1] = replace(rows[1], shown="shaw-keys", flags="--clipping-distance 1 --relative-values false")
    xs = [handle.lines[0].get_xdata()[0] for handle in drawn(rows)[1].values()]
    assert xs == [pytest.approx(0.92), pytest.approx(1.08), 8]


def test_a_plot_names_languages_that_it_knows(made: Path) -> None:
    assert plot.title_in_words(pooled(made)[0].setting) == "Quickstart, xa-xb"
    setting = Setting("mine", "jpn-en", "test_2016", None, "shaw")
    assert plot.title_in_words(setting) == "mine, Japanese to English, test 2016"


@pytest.mark.filterwarnings("error:constrained_layout")
def test_many_encodings_without_a_distance_have_places_beside_the_curves(tmp_path: Path) -> None:
    """As lines, they could not be told apart."""
    rows = pooled(ROOT / "results" / "quickstart" / "xa-xb")
    plot.plot([rows], tmp_path / "plot.png")
    (_, lower), handles = drawn(rows)
    names = [label.get_text() for label in lower.get_xticklabels()]
    assert {"128", "rotary", "nopos"} <= set(names)
    assert not set(names) & set(handles)
    assert len(set(lower.get_xticks())) == len(names)


def test_an_encoding_has_one_colour_and_its_variants_differ_without_it() -> None:
    drawn = styles([("t5", "t5"), ("t5-gain", "t5"), ("mine", "mine"), ("t5", "t5")])
    assert list(drawn) == ["t5", "t5-gain", "mine"]
    assert drawn["t5"].colour == drawn["t5-gain"].colour == colour_of("t5") != drawn["mine"].colour
    assert len({(str(style.line), style.marker) for style in drawn.values()}) == 3
    assert encoding_in("shaw-k16-encoder", "sinusoidal") == "shaw"
    assert encoding_in("mine-2", "fire") == "fire"
