"""Reading, pooling, tables and plots, from small experiment directories scored by the real SacreBLEU."""

import hashlib
import io
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from matplotlib.figure import Figure

import posenc_experiments
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.cli import group
from posenc_experiments.evaluation import plot
from posenc_experiments.evaluation.comparison import report
from posenc_experiments.evaluation.metrics import BLEU, CHRF, TOKENIZED
from posenc_experiments.evaluation.pooling import Comparison, find_row, pool, row_names, with_seeds
from posenc_experiments.evaluation.results import read_results, seal
from posenc_experiments.experiment.versions import all_environments
from tests import forked

ROOT = Path(__file__).resolve().parents[3]
WORDS = [f"w{number}" for number in range(30)]
LINES = 60


def sacrebleu(*words: str | Path) -> str:
    process = forked.run("sacrebleu", list(map(str, words)), None, os.environ)
    assert process.returncode == 0, process.stderr
    return str(process.stdout)


def references() -> list[list[str]]:
    chance = random.Random(0)
    return [chance.choices(WORDS, k=chance.randint(5, 15)) for _ in range(LINES)]


def made_from(encoding: str, flags: dict[str, object]) -> dict[str, Any]:
    """`made_from` as the recipes record it."""
    options = {name.replace("-", "_"): value for name, value in flags.items()}
    return {
        "computation": 1,
        "initial_values": {encoding: 1},
        "architecture": f"transformer_{encoding}_tiny",
        "positions": {"encoding": encoding, **options},
        "training": {"lr": [0.01], "optimizer": "adam"},
        "data": {"train": [{"en": ["sha256:" + 64 * "0"]}, {"en": ["sha256:" + 64 * "1"]}]},
    }


def add_experiment(root: Path, name: str, flags: dict[str, object], seed: int, errors: float) -> Path:
    """Writes an experiment whose translations are the references with this share of wrong words."""
    encoding = name.split("-")[0]
    arch = f"transformer_{encoding}_tiny"
    setting = "-".join([arch, *(f"{key}-{value}" for key, value in flags.items())])
    directory = root / "tiny" / "en-de" / setting / f"seed{seed}"
    directory.mkdir(parents=True)
    chance = random.Random(f"{name}{seed}")
    hypotheses = [[word if chance.random() > errors else "x" for word in line] for line in references()]
    for kind, lines in (("ref", references()), ("hyp", hypotheses)):
        (directory / f"test.{kind}").write_text("".join(" ".join(line) + "\n" for line in lines))
    about: dict[str, object] = {"corpus": "tiny", "pair": "en-de", "arch": arch, "encoding": encoding}
    about |= {"flags": flags, "seed": seed, "name": name, "made_from": made_from(encoding, flags)}
    about |= {"fingerprint": f"fingerprint of {setting}", "environment": {"commit": "a" * 40, "torch": "2.6"}}
    (directory / "experiment.json").write_text(json.dumps(about))
    training = {"parameters": 1_234_567, "words_per_second": 1000.0 + seed, "updates": 10}
    (directory / "training.json").write_text(json.dumps(training))
    files: list[str | Path] = [directory / "test.ref", "-i", directory / "test.hyp"]
    scores = sacrebleu(*files, "-m", "bleu", "chrf", "--confidence", "-f", "json", "-w", "2")
    write_scores(directory, json.loads(scores))
    return directory


def write_scores(directory: Path, rows: list[dict[str, Any]], kind: str = "sacrebleu") -> None:
    """Writes scores as the stage score does, with hashes of the scored files and of the scores."""
    hashes = [hashlib.sha256((directory / f"test.{file}").read_bytes()).hexdigest() for file in ("hyp", "ref")]
    facts = {"translation": {}, "hypotheses": hashes[0], "references": hashes[1]}
    rows = [{**row, **facts} for row in rows]
    (directory / f"test.{kind}.json").write_text(json.dumps([{**row, "seal": seal(row)} for row in rows]))


def score_again(directory: Path, old: str = "", new: str = "") -> None:
    """Writes the scores of a directory again, with the hashes of its files now, and a text in place of another."""
    text = (directory / "test.sacrebleu.json").read_text()
    write_scores(directory, json.loads(text.replace(old, new) if old else text))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("experiments")
    for distance, errors in ((0, 0.4), (2, 0.2)):
        add_experiment(root, f"shaw-k{distance}", {"clipping-distance": distance}, 1, errors)
    add_experiment(root, "sinusoidal", {}, 1, 0.22)
    add_experiment(root, "sinusoidal", {}, 2, 0.25)
    return root


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A copy of the experiments, which a test may damage."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


def one(root: Path, name: str) -> Path:
    return next(root.rglob(f"*{name}*/seed1"))


def seeds(root: Path) -> list[Path]:
    """The directories of both seeds of `sinusoidal`."""
    return sorted(root.rglob("*sinusoidal*/seed*"))


def pooled(*paths: Path, **test: Any) -> pd.DataFrame:
    return pool(read_results(paths), Comparison(**test) if test else None)


def text_of(*paths: Path, style: str = "text", **test: Any) -> str:
    return report(pooled(*paths, **test)).format(style)


def csv_of(rows: pd.DataFrame) -> list[dict[str, str]]:
    """The rows of the CSV, as text."""
    text = io.StringIO(report(rows).format("csv"))
    return list(pd.read_csv(text, dtype=str, keep_default_na=False).to_dict("records"))


def compare(*words: str | Path) -> Result:
    return CliRunner().invoke(group, ["compare", *map(str, words)])


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
    found: dict[str, Any] = json.loads((directory / "test.sacrebleu.json").read_text())[metric]
    return found


# reading and pooling


def test_results_are_a_row_for_each_experiment_seed_test_set_and_metric(made: Path) -> None:
    found = posenc_experiments.read_results(made)
    assert [(one.name, one.seed, one.metric) for one in found.itertuples()] == [
        (name, seed, metric)
        for name, seed in (("shaw-k0", 1), ("shaw-k2", 1), ("sinusoidal", 1), ("sinusoidal", 2))
        for metric in (BLEU, CHRF)
    ]
    assert list(found["--clipping-distance"].dropna()) == [0, 0, 2, 2]
    assert found.groupby(["metric", "name"])["score"].mean()[CHRF, "shaw-k2"] == reported(one(made, "ce-2"), 1)["score"]


def test_seeds_are_pooled(made: Path) -> None:
    rows = pooled(made).to_dict("records")
    assert [row["name"] for row in rows] == ["shaw-k0", "shaw-k2", "sinusoidal"]
    shaw = reported(one(made, "distance-2"))
    assert (rows[1][BLEU], rows[1]["BLEU interval"]) == (shaw["score"], shaw["confidence_var"])
    assert rows[1]["BLEU spread"] is None
    scores = [reported(path)["score"] for path in seeds(made)]
    assert rows[2][BLEU] == pytest.approx(statistics.fmean(scores))
    assert rows[2]["BLEU spread"] == pytest.approx(abs(scores[0] - scores[1]) / 2**0.5)
    assert (rows[2]["BLEU interval"], rows[2]["words_per_second"]) == (None, 1001.5)


def test_found_experiments_are_sorted_and_named_ones_keep_their_order(made: Path, tmp_path: Path) -> None:
    wanted = []
    for value in (2, 4, 16):
        directory = tmp_path / f"transformer_shaw_tiny-clipping-distance-{value}/seed1"
        shutil.copytree(one(made, "distance-2"), directory)
        change(directory, "flags", value={"clipping-distance": value})
        wanted.append(directory)
    assert [flags.split()[1] for flags in pooled(tmp_path)["flags"]] == ["2", "4", "16"]
    # A shell's * puts 16 before 2.
    pd.testing.assert_frame_equal(read_results(sorted(tmp_path.iterdir())), read_results([tmp_path]))
    named = read_results([wanted[2], wanted[1], tmp_path, wanted[2]])
    assert list(dict.fromkeys(named["directory"]))[:2] == [wanted[2], wanted[1]]
    assert len(named) == len(read_results([tmp_path]))


def test_links_to_experiments_are_followed(made: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(made)
    (tmp_path / "above").symlink_to(tmp_path)
    assert len(read_results([tmp_path])) == len(read_results([made]))


@pytest.mark.parametrize(
    ("path", "value", "variants"),
    [
        (("made_from", "training", "dropout"), 0.3, ["training dropout the default", "training dropout 0.3"]),
        (
            ("made_from", "data", "train", 1, "en"),
            ["sha256:2"],
            ["data train 2 en sha256:1111111111", "data train 2 en sha256:2"],
        ),
        (  # another member of the same archive
            ("made_from", "data", "train", 1, "en"),
            [f"sha256:{64 * '1'} b.en"],
            ["data train 2 en sha256:1111111111", "data train 2 en sha256:1111111111 b.en"],
        ),
        (
            ("environment", "batch"),
            "3 x --max-tokens 133",
            ["batch the default", "batch 3 x --max-tokens 133"],
        ),
        (("environment", "precision"), "bf16", ["precision the default", "precision bf16"]),
    ],
)
def test_seeds_with_different_settings_are_separate_rows(
    copy: Path, path: tuple[str | int, ...], value: object, variants: list[str]
) -> None:
    first, second = seeds(copy)
    change(second, *path, value=value)
    names = [f"sinusoidal ({variant})" for variant in variants]
    assert row_names(pooled(copy)) == ["shaw-k0", "shaw-k2", *names]
    assert [row["experiment"] for row in csv_of(pooled(copy))][2:] == names
    with pytest.raises(RecipeError, match="several rows on test have this name"):
        pooled(copy, baseline="sinusoidal")
    assert list(pooled(copy, baseline=names[1])["difference"].isna()) == [False, False, False, True]
    change(first, *path, value=value)
    assert len(pooled(copy)) == 3


def test_a_seed_counts_once(copy: Path) -> None:
    assert len(read_results([copy, one(copy, "distance-2"), copy])) == 8
    shutil.copytree(one(copy, "distance-2"), copy / "again")
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
    bleu, chrf = reported(one(made, "distance-2")), reported(one(made, "distance-2"), 1)
    for style in ("text", "markdown"):
        text = text_of(made, style=style)
        line = next(line for line in text.split("\n") if "shaw-k2" in line)
        words = f"{bleu['score']:.2f} ± {bleu['confidence_var']:.2f}"
        assert all(word in line for word in (words, f"{chrf['score']:.2f}", "1,234,567", "1,001"))
        assert f"BLEU: {bleu['signature']}" in text
        assert "standard deviation over the seeds" in text
        assert "Warning" not in text


def test_csv_is_one_line_a_row_with_whole_numbers(made: Path) -> None:
    table = csv_of(pooled(made))
    assert [row["experiment"] for row in table] == ["shaw-k0", "shaw-k2", "sinusoidal"]
    assert float(table[1]["bleu"]) == reported(one(made, "distance-2"))["score"]
    assert (table[1]["flags"], table[1]["parameters"]) == ("--clipping-distance 2", "1234567")
    assert (table[2]["seeds"], table[2]["bleu_interval"]) == ("1 2", "")
    assert {row["p_value"] for row in table} == {""}
    assert {row["verified"] for row in table} == {"yes"}


def test_p_of_one_seed_is_that_of_sacrebleus_own_command(made: Path) -> None:
    baseline, system = one(made, "sinusoidal"), one(made, "distance-2")
    files: list[str | Path] = [baseline / "test.ref", "-i", baseline / "test.hyp", system / "test.hyp"]
    table = json.loads(sacrebleu(*files, "-m", "bleu", "--paired-bs", "-f", "json"))
    wanted = next(row for row in table if "distance-2" in row["system"])["BLEU"]["p_value"]
    rows = pooled(system, baseline, baseline="sinusoidal")
    assert rows["one_seed_p_value"][0] == pytest.approx(wanted)
    assert (rows["p_value"][0], rows["difference"][1]) == (None, None)
    text = report(rows).format("text")
    assert f"{wanted:.3f}" in text
    assert "*" not in text.splitlines()[4]  # no star without a test of the settings


def test_seeds_with_different_code_or_libraries_are_pooled_with_a_note(copy: Path) -> None:
    now = {"commit": "b" * 40, "torch": "2.6", "changed": True}
    resumed = all_environments({"commit": "a" * 40, "torch": "2.6"}, now)
    assert all_environments(resumed, now) == resumed
    change(seeds(copy)[1], "environment", value=resumed)
    text = text_of(copy)
    assert "sinusoidal was trained with different code or libraries: commit (aaaaaaaaaa, bbbbbbbbbb), changed" in text
    assert "torch (" not in text


def test_hidden_differences_between_rows_are_noted(copy: Path) -> None:
    warning = "Warning: rows differ in more than their names say, "
    zero, two = one(copy, "distance-0"), one(copy, "distance-2")
    change(two, "made_from", "training", "lr", value=[0.03])
    change(zero, "made_from", "positions", "segment_separator", value="x")
    text = text_of(copy)
    assert f"{warning}training lr (0.01: shaw-k0, sinusoidal; 0.03: shaw-k2).\n" in text
    assert f"{warning}positions segment_separator (x: shaw-k0; the default: shaw-k2, sinusoidal).\n" in text
    assert text.count(warning) == 2
    # differences that flags show need no warning
    change(two, "flags", "lr", value=0.03)
    change(zero, "flags", "segment-separator", value="x")
    assert warning not in text_of(copy)


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
            give_setup(one(made, name), setup, tmp_path / name, points)
    rows = pooled(tmp_path)
    assert row_names(rows) == ["base shaw-k2", "big shaw-k2", "base sinusoidal", "big sinusoidal"]
    assert rows[BLEU][1] == pytest.approx(rows[BLEU][0] + 1)
    assert not any(rows["BLEU spread"])  # not seeds of one setting
    assert [(row["setup"], row["experiment"]) for row in csv_of(rows)[:2]] == [("base", "shaw-k2"), ("big", "shaw-k2")]
    assert row_names(pooled(tmp_path / "distance-2" / "base")) == ["shaw-k2"]  # a single setup is not shown
    with pytest.raises(RecipeError, match=r"--baseline sinusoidal: several .* base sinusoidal, big sinusoidal"):
        pooled(tmp_path, baseline="sinusoidal")
    tested = pooled(tmp_path, baseline="big sinusoidal")
    assert list(tested["difference"].isna()) == [False, False, False, True]


def test_the_historical_score_has_a_column_if_it_exists(copy: Path) -> None:
    header, before = "tok. BLEU (historical)", pooled(copy)
    assert header not in report(before).format("text")
    signature = "historical tokenized BLEU, not comparable with SacreBLEU|tok:moses-de"
    for directory, value in zip([one(copy, "distance-2"), *seeds(copy)], (27.25, 30.0, 32.0), strict=True):
        written = [{"name": "tokenized BLEU (historical)", "score": value, "signature": signature}]
        write_scores(directory, written, "historical")
    rows = pooled(copy)
    assert list(rows[TOKENIZED]) == [None, 27.25, 31.0]
    text = report(rows).format("text")
    assert header in text
    assert "31.00 ± 1.41" in next(line for line in text.split("\n") if "sinusoidal" in line)
    assert f"tok. BLEU: {signature}" in text
    assert list(rows[BLEU]) == list(before[BLEU])  # other numbers do not depend on it


def test_lowercased_scores_are_named_and_tested_without_case(copy: Path) -> None:
    signature = "lowercased tokenized BLEU, not comparable with SacreBLEU|nrefs:1|case:lc|tok:moses-de"
    written = [{"name": "tokenized BLEU (lowercased)", "score": 41.02, "signature": signature}]
    for directory in {path.parent for path in copy.rglob("experiment.json")}:
        write_scores(directory, written, "historical")
        score_again(directory, "|case:mixed|", "|case:lc|")
    before = pooled(copy, baseline="shaw-k0")
    text = report(before).format("text")
    assert "tok. BLEU (lowercased)" in text
    assert text.count("BLEU and chrF ignore case (case:lc)") == 1
    # The hypotheses in capitals are the same system.
    path = one(copy, "distance-2") / "test.hyp"
    path.write_text(path.read_text().upper())
    write_scores(path.parent, written, "historical")
    score_again(path.parent)
    assert pooled(copy, baseline="shaw-k0")["one_seed_p_value"][1] == before["one_seed_p_value"][1] < 1


def test_what_set_gave_all_rows_stands_once_above_the_table(copy: Path) -> None:
    for path in sorted(copy.rglob("seed*")):
        about = json.loads((path / "experiment.json").read_text())
        given = {"max-update": 300} | ({"lr": about["flags"]["clipping-distance"]} if about["flags"] else {})
        change(path, "flags", value=about["flags"] | given)
        change(path, "name", value=about["name"] + "".join(f" --{key} {value}" for key, value in given.items()))
    rows = pooled(copy, baseline="sinusoidal")
    assert row_names(rows) == ["shaw-k0 --lr 0", "shaw-k2 --lr 2", "sinusoidal"]
    for style in ("text", "markdown", "latex"):
        text = report(rows).format(style)
        assert text.count("max-update") == 1
        assert "tiny en-de test, all with --max-update 300" in text.split("\n")[0]
    assert csv_of(rows)[0]["experiment"] == "shaw-k0 --max-update 300 --lr 0"
    assert [find_row(rows, name) for name in ("sinusoidal", "sinusoidal --max-update 300")] == [2, 2]


def test_scores_that_cannot_be_verified_are_shown_and_marked(copy: Path) -> None:
    (one(copy, "distance-0") / "test.hyp").unlink()
    scores = json.loads((one(copy, "sinusoidal") / "test.sacrebleu.json").read_text())
    write_scores(one(copy, "sinusoidal"), [row | {"reference": "sacrebleu -t wmt14/full -l en-de"} for row in scores])
    text = text_of(copy)
    assert "Not verified: shaw-k0; " in text
    assert text.count("Reference: sacrebleu -t wmt14/full -l en-de\n") == 1
    assert [row["verified"] for row in csv_of(pooled(copy))] == ["no", "yes", "yes"]


# refusals


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("experiment.json", '{"corpus": "tiny", "pa', "JSON"),
        ("experiment.json", '{"corpus": "tiny"}', "'pair'"),
        ("training.json", "3", "damaged"),
        ("test.sacrebleu.json", '[{"name": "BLEU", "score": 1, "signature": "s"}]', "score again"),
        ("test.historical.json", '["BLEU"]', "score again"),
        ("test.COMET.scores", "0.5\n", "line 1"),
        ("test.COMET.scores", "# comet\nx\n", "line 2"),
        ("test.COMET.scores", "# comet\n1\n", "1 scores"),
        ("test.chrF.scores", "# chrf\n" + "1\n" * LINES, "chrF"),
    ],
)
def test_a_damaged_file_is_one_sentence(copy: Path, name: str, content: str, words: str) -> None:
    path = one(copy, "distance-2") / name
    path.write_text(content)
    with pytest.raises(RecipeError) as error:
        read_results([copy])
    assert str(error.value).startswith(str(path))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_an_edited_score_is_refused(copy: Path) -> None:
    directory = one(copy, "distance-2")
    path = directory / "test.sacrebleu.json"
    assert read_results([directory])["verified"].all()
    rows = json.loads(path.read_text())
    rows[0]["score"] += 1
    path.write_text(json.dumps(rows))
    with pytest.raises(RecipeError, match="is not what the stage score wrote"):
        read_results([copy])


@pytest.mark.parametrize("kind", ["hyp", "ref"])
def test_scores_of_changed_files_are_refused(copy: Path, kind: str) -> None:
    file = one(copy, "distance-2") / f"test.{kind}"
    file.write_text(file.read_text().replace("w1 ", "w2 ", 1))
    with pytest.raises(RecipeError) as error:
        read_results([copy])
    assert str(error.value).startswith(f"{file} is not the file that was scored")


def test_other_references_are_refused_without_a_baseline_too(copy: Path) -> None:
    reference = one(copy, "distance-2") / "test.ref"
    reference.write_text(reference.read_text().replace("w1 ", "w2 ", 1))
    score_again(reference.parent)
    for missing in (False, True):
        if missing:
            reference.unlink()  # the recorded hash suffices
        with pytest.raises(RecipeError, match="have different references for test: they cannot be compared"):
            pooled(copy)


def test_differing_signatures_are_refused(copy: Path) -> None:
    score_again(one(copy, "distance-2"), "nw:0", "nw:2")
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
        ([copy, "--plot", tmp_path / "plot.xyz"], "plot.xyz: the plot cannot be written"),
    ):
        result = compare(*words)
        assert result.exit_code == 1
        assert message in result.stderr


def test_missing_references_are_those_of_the_prepared_data(copy: Path, tmp_path: Path) -> None:
    options: list[str | Path] = [copy, "--seeds", "1", "--baseline", "sinusoidal", "--format", "csv"]
    wanted = compare(*options).stdout
    prepared = tmp_path / "data" / "tiny" / "en-de" / "prepared"
    prepared.mkdir(parents=True)
    for reference in list(copy.rglob("test.ref")):
        reference.replace(prepared / "test.de")
    result = compare(*options)
    assert "test.ref is missing, and --baseline and --all-tests need it: run its recipe with --st" in result.stderr
    options += ["--data-dir", tmp_path / "data"]
    assert compare(*options).stdout == wanted
    (prepared / "test.de").write_text("another text\n" * LINES)
    result = compare(*options)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {prepared / 'test.de'} is not the file that was scored")


# the plot and the command


def test_the_plot_draws_bleu_against_the_distance_and_others_as_lines(made: Path) -> None:
    rows = pooled(made)
    axes: Any = Figure().subplots()
    plot.draw(axes, rows)
    curve = axes.containers[0].lines[0]
    assert list(curve.get_xdata()) == [0, 2]
    assert list(curve.get_ydata()) == list(rows[BLEU][:2])
    level = next(line for line in axes.lines if line.get_label() == "sinusoidal")
    assert set(level.get_ydata()) == {rows[BLEU][2]}
    assert [label.get_text() for label in axes.get_legend().get_texts()] == ["shaw", "sinusoidal"]


@pytest.mark.filterwarnings("error:constrained_layout")
def test_a_long_legend_stands_beside_the_plot(tmp_path: Path) -> None:
    """Within it, matplotlib warns and draws no curve that can be seen."""
    rows = pooled(ROOT / "results" / "quickstart" / "xa-xb")
    plot.plot(rows, tmp_path / "plot.png")
    axes: Any = Figure().subplots()
    plot.draw(axes, rows)
    lines = [line for line in axes.lines if line.get_linestyle() not in ("-", "None")]
    assert len({(line.get_color(), str(line._dash_pattern)) for line in lines}) == len(lines) > 40


def test_the_command(made: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "compare.py"]
    options: list[str | Path] = ["--format", "markdown", "--baseline", "sinusoidal", "--plot", tmp_path / "plot.svg"]
    directories = sorted(made.rglob("seed1"))
    process = subprocess.run([*command, *directories, *options], capture_output=True, encoding="utf-8", check=True)
    assert process.stdout == text_of(*directories, style="markdown", baseline="sinusoidal")
    assert process.stderr == f"Plot: {tmp_path / 'plot.svg'}\n"
    assert (tmp_path / "plot.svg").is_file()
