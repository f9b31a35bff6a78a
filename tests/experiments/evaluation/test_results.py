"""Tables, pooling, significance and plots, from small experiment directories scored by the real SacreBLEU."""

import csv
import hashlib
import io
import json
import math
import random
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.cli import group
from posenc_experiments.evaluation import comparison, plot, pooling, results
from posenc_experiments.evaluation.metrics import BLEU
from posenc_experiments.evaluation.significance import resample, sacrebleu_p
from posenc_experiments.experiment.identity import all_environments

ROOT = Path(__file__).resolve().parents[3]
WORDS = [f"w{number}" for number in range(30)]
LINES = 60


def sacrebleu(*words: str | Path) -> str:
    command = [sys.executable, "-m", "sacrebleu", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout


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
    (directory / "test.sacrebleu.json").write_text(scores)
    return directory


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


def reported(directory: Path, metric: int = 0) -> dict[str, Any]:
    """The output of SacreBLEU."""
    found: dict[str, Any] = json.loads((directory / "test.sacrebleu.json").read_text())[metric]
    return found


def record(directory: Path, translation: dict[str, object], kind: str = "sacrebleu") -> None:
    """Adds hashes of the scored files and of the scores to the scores, as the stage score does."""
    path = directory / f"test.{kind}.json"
    hashes = [hashlib.sha256((directory / f"test.{file}").read_bytes()).hexdigest() for file in ("hyp", "ref")]
    facts = {"hypotheses": hashes[0], "references": hashes[1], "translation": translation}
    rows = [{**row, **facts} for row in json.loads(path.read_text())]
    path.write_text(json.dumps([{**row, "seal": results.seal(row)} for row in rows]))


def test_seeds_are_pooled_and_single_ones_keep_their_interval(made: Path) -> None:
    rows = pooling.pool(results.read_experiments([made]))
    assert [row.first.name for row in rows] == ["shaw-k0", "shaw-k2", "sinusoidal"]
    shaw = rows[1]
    assert (shaw.bleu.mean, shaw.bleu.interval) == (
        reported(one(made, "distance-2"))["score"],
        reported(one(made, "distance-2"))["confidence_var"],
    )
    assert shaw.bleu.spread is None
    assert shaw.clipping_distance == 2
    seeds = [reported(path)["score"] for path in sorted(made.rglob("*sinusoidal*/seed*"))]
    assert rows[2].bleu.mean == pytest.approx(statistics.fmean(seeds))
    assert rows[2].bleu.spread == pytest.approx(abs(seeds[0] - seeds[1]) / 2**0.5)
    assert rows[2].bleu.interval is None
    assert rows[2].words_per_second == 1001.5


def test_found_experiments_are_sorted_and_named_ones_keep_their_order(made: Path, tmp_path: Path) -> None:
    wanted = []
    for key, values in {"clipping-distance": (2, 4, 16, 64), "dropout": (0.15, 0.2, 1e-3)}.items():
        for value in values:
            directory = shutil.copytree(
                one(made, "distance-2"), tmp_path / f"transformer_shaw_tiny-{key}-{value}/seed1"
            )
            change(directory, "flags", value={key: value})
            change(directory, "name", value=f"shaw-{key}-{value}")
            wanted.append((value, directory))
    for path in wanted[0][1].glob("test.*"):
        for test in ("test_2", "test_10"):
            shutil.copy(path, path.with_name(path.name.replace("test", test)))
    found = pooling.pool(results.read_experiments([tmp_path]))
    flags = [next(iter(row.first.flags.values())) for row in found if row.first.test == "test"]
    assert flags == [2, 4, 16, 64, 0.001, 0.15, 0.2]
    assert list(dict.fromkeys(row.first.test for row in found)) == ["test", "test_2", "test_10"]
    # A shell's * puts 16 before 2.
    assert results.read_experiments(sorted(tmp_path.iterdir())) == results.read_experiments([tmp_path])

    _, sixteen = wanted[2]
    named = results.read_experiments([sixteen, wanted[1][1], tmp_path, sixteen])
    assert [next(iter(score.flags.values())) for score in named[:2]] == [16, 4]
    assert len(named) == len(found)


def test_text_and_markdown_show_the_numbers_and_the_signature(made: Path) -> None:
    rows = pooling.pool(results.read_experiments([made]))
    bleu, chrf = reported(one(made, "distance-2")), reported(one(made, "distance-2"), 1)
    for text in (comparison.report(rows).format("text"), comparison.report(rows).format("markdown")):
        line = next(line for line in text.split("\n") if "shaw-k2" in line)
        words = f"{bleu['score']:.2f} ± {bleu['confidence_var']:.2f}"
        for word in (words, f"{chrf['score']:.2f}", "1,234,567", "1,001"):
            assert word in line
        assert f"BLEU: {bleu['signature']}" in text
        assert "standard deviation over the seeds" in text
        assert "Warning" not in text
    assert comparison.report(rows).format("markdown").count("|---") > 0


def test_csv_is_one_line_a_row_with_whole_numbers(made: Path) -> None:
    rows = pooling.pool(results.read_experiments([made]))
    table = list(csv.DictReader(io.StringIO(comparison.report(rows).format("csv"))))
    assert [row["experiment"] for row in table] == ["shaw-k0", "shaw-k2", "sinusoidal"]
    assert float(table[1]["bleu"]) == reported(one(made, "distance-2"))["score"]
    assert table[1]["flags"] == "--clipping-distance 2"
    assert table[2]["seeds"] == "1 2"
    assert table[2]["bleu_interval"] == ""
    assert {row["p_value"] for row in table} == {""}
    assert table[0]["bleu_signature"].startswith("nrefs:1|")
    assert {row["verified"] for row in table} == {"no"}

    rows = pooling.pool(results.read_experiments(sorted(made.rglob("seed1"))), pooling.Comparison("sinusoidal"))
    table = list(csv.DictReader(io.StringIO(comparison.report(rows).format("csv"))))
    assert table[2]["one_seed_p_value"] == table[0]["p_value"] == table[0]["holm_p_value"] == ""
    assert 0 < float(table[0]["one_seed_p_value"]) < 0.05
    wanted = float(table[0]["bleu"]) - float(table[2]["bleu"])
    assert float(table[0]["difference"]) == pytest.approx(wanted, abs=0.01)  # scores are recorded with two digits


def test_p_of_one_seed_is_that_of_sacrebleus_own_command(made: Path) -> None:
    baseline, system = one(made, "sinusoidal"), one(made, "distance-2")
    files: list[str | Path] = [baseline / "test.ref", "-i", baseline / "test.hyp", system / "test.hyp"]
    table = json.loads(sacrebleu(*files, "-m", "bleu", "--paired-bs", "-f", "json"))
    wanted = next(row for row in table if "distance-2" in row["system"])["BLEU"]["p_value"]
    rows = pooling.pool(results.read_experiments([system, baseline]), pooling.Comparison("sinusoidal"))
    assert rows[0].tested is not None
    assert rows[0].tested.sacrebleu_p_value == pytest.approx(wanted)
    assert (rows[0].tested.p_value, rows[1].tested) == (None, None)
    text = comparison.report(rows).format("text")
    assert f"{wanted:.3f}" in text
    assert "baseline" in text
    assert "one seed's p: SacreBLEU's" in text
    assert "*" not in text.splitlines()[4]  # no star without a test of the settings


def change(experiment: Path, *path: str | int, value: object) -> None:
    """Changes a value in experiment.json."""
    about = json.loads((experiment / "experiment.json").read_text())
    here = about
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    (experiment / "experiment.json").write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("training", "lr"), [0.03], "training lr (0.01 and 0.03)"),
        (("training", "dropout"), 0.3, "training dropout (the default and 0.3)"),
        (("positions", "input_positions"), "learned", "positions input_positions (the default and learned)"),
        (("initial_values", "sinusoidal"), 2, "initial_values sinusoidal (1 and 2)"),
        (("computation",), 2, "computation (1 and 2)"),
        (("data", "train", 1, "en"), ["sha256:" + 64 * "2"], "data train 2 en (sha256:1111111111 and sha256:22"),
        (("files",), {"finetune_from_model": "sha256:ab"}, "files finetune_from_model (the default and sha256:ab)"),
        (("translation",), {"beam": 5}, "translation beam (the default and 5)"),
    ],
)
def test_seeds_with_different_settings_are_not_pooled(
    copy: Path, path: tuple[str | int, ...], value: object, words: str
) -> None:
    first, second = sorted(copy.rglob("*sinusoidal*/seed*"))
    change(second, "made_from", *path, value=value)
    with pytest.raises(RecipeError) as error:
        pooling.pool(results.read_experiments([copy]))
    assert str(error.value).startswith(f"{first} and {second} are not seeds of one experiment: they differ in {words}")
    assert "\n" not in str(error.value)
    change(first, "made_from", *path, value=value)
    assert len(pooling.pool(results.read_experiments([copy]))) == 3


def test_seeds_whose_batches_differ_by_hardware_are_not_pooled(copy: Path) -> None:
    _, second = sorted(copy.rglob("*sinusoidal*/seed*"))
    change(second, "environment", "batch", value="3 x --max-tokens 133 --update-freq 1")
    with pytest.raises(RecipeError, match=r"they differ in batch \(the default and 3 x --max-tokens 133"):
        pooling.pool(results.read_experiments([copy]))


def test_only_the_first_differences_are_listed(copy: Path) -> None:
    second = copy / one(copy, "sinusoidal").relative_to(copy).parent / "seed2"
    for number in range(9):
        change(second, "made_from", "training", f"flag{number}", value=number)
    with pytest.raises(RecipeError, match=r"training flag0 .*training flag3 \(the default and 3\) and 5 more; "):
        pooling.pool(results.read_experiments([copy]))


def test_older_experiments_are_shown_marked_and_never_pooled(copy: Path) -> None:
    for directory in copy.rglob("*sinusoidal*/seed*"):
        about = json.loads((directory / "experiment.json").read_text())
        for key in ("made_from", "fingerprint", "environment"):
            del about[key]
        (directory / "experiment.json").write_text(json.dumps(about))
    rows = pooling.pool(results.read_experiments([copy]))
    assert [len(row.scores) for row in rows] == [1, 1, 1, 1]
    text = comparison.report(rows).format("text")
    assert names(text) == ["shaw-k0", "shaw-k2", "sinusoidal (seed 1) *", "sinusoidal (seed 2) *"]
    assert text.count("*: trained before experiments recorded what their results depend on") == 1
    table = list(csv.DictReader(io.StringIO(comparison.report(rows).format("csv"))))
    assert [row["experiment"] for row in table] == ["shaw-k0", "shaw-k2", "sinusoidal", "sinusoidal"]
    assert [bool(row["fingerprint"]) for row in table] == [True, True, False, False]
    shutil.rmtree(next(copy.rglob("*sinusoidal*/seed2")))
    rows = pooling.pool(
        results.read_experiments([copy]), pooling.Comparison("sinusoidal")
    )  # the mark is no part of the name
    assert names(comparison.report(rows).format("text")) == ["shaw-k0", "shaw-k2", "sinusoidal *"]


def test_seeds_with_different_code_or_libraries_are_pooled_with_a_note(copy: Path) -> None:
    second = next(copy.rglob("*sinusoidal*/seed2"))
    first = {"commit": "a" * 40, "torch": "2.6"}
    now = {"commit": "b" * 40, "torch": "2.6", "changed": True}
    resumed = all_environments(first, now)
    assert resumed == {"commit": ["a" * 40, "b" * 40], "torch": "2.6", "changed": [None, True]}
    assert all_environments(resumed, now) == resumed
    change(second, "environment", value=resumed)
    rows = pooling.pool(results.read_experiments([copy]))
    assert [len(row.scores) for row in rows] == [1, 1, 2]
    said = "sinusoidal was trained with different code or libraries: commit (aaaaaaaaaa, bbbbbbbbbb), changed"
    for text in (comparison.report(rows).format("text"), comparison.report(rows).format("markdown")):
        assert text.count(said) == 1
        assert "torch (" not in text


def test_hidden_differences_between_rows_are_noted(copy: Path) -> None:
    warning = "Warning: rows differ in more than their names say, "
    directories = [one(copy, "distance-0"), one(copy, "distance-2"), *copy.rglob("*sinusoidal*/seed*")]
    assert warning not in comparison.report(pooling.pool(results.read_experiments([copy]))).format("text")
    change(directories[1], "made_from", "training", "lr", value=[0.03])
    change(directories[0], "made_from", "positions", "segment_separator", value="x")
    text = comparison.report(pooling.pool(results.read_experiments([copy]))).format("text")
    assert f"{warning}training lr (0.01: shaw-k0, sinusoidal; 0.03: shaw-k2).\n" in text
    assert f"{warning}positions segment_separator (x: shaw-k0; the default: shaw-k2, sinusoidal).\n" in text
    assert text.count(warning) == 2
    # differences that flags show need no warning
    change(directories[1], "flags", "lr", value=0.03)
    change(directories[0], "flags", "segment-separator", value="x")
    assert warning not in comparison.report(pooling.pool(results.read_experiments([copy]))).format("text")
    # nor do those between setups
    change(directories[1], "flags", value={"clipping-distance": 2})
    change(directories[1], "setup", value="large")
    assert warning not in comparison.report(pooling.pool(results.read_experiments([copy]))).format("text")


def test_different_initial_values_of_one_encoding_are_noted(copy: Path) -> None:
    change(one(copy, "distance-2"), "made_from", "initial_values", "shaw", value=2)
    text = comparison.report(pooling.pool(results.read_experiments([copy]))).format("text")
    assert "initial_values shaw (1: shaw-k0; 2: shaw-k2)." in text
    assert text.count("Warning") == 1


def test_a_gain_that_flags_show_needs_no_warning(copy: Path) -> None:
    for name, gain in (("distance-0", {"bias_gain": 4.0}), ("distance-2", {"bias_gain": 4.0, "input_gain": 8.0})):
        change(one(copy, name), "flags", "bias-gain", value="auto")
        for key, value in gain.items():
            change(one(copy, name), "made_from", "positions", key, value=value)
    assert "Warning" not in comparison.report(pooling.pool(results.read_experiments([copy]))).format("text")


def give_setup(experiment: Path, setup: str, root: Path, points: float) -> Path:
    """Copies an experiment to another setup, and adds this number of BLEU points."""
    directory = Path(shutil.copytree(experiment, root / setup / experiment.parent.name / experiment.name))
    about = json.loads((directory / "experiment.json").read_text())
    (directory / "experiment.json").write_text(json.dumps({**about, "setup": setup}))
    scores = json.loads((directory / "test.sacrebleu.json").read_text())
    scores[0]["score"] += points
    (directory / "test.sacrebleu.json").write_text(json.dumps(scores))
    return directory


def names(text: str) -> list[str]:
    """The first column of a table in text."""
    return [line.split("  ")[0] for line in text.split("\n") if "1,234,567" in line]


def test_setups_are_separate_rows_of_one_table(made: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("distance-2", "sinusoidal")):
        for points, setup in ((1, "base"), (2, "big")):
            give_setup(one(made, name), setup, tmp_path / str(number), points)
    rows = pooling.pool(results.read_experiments([tmp_path]))
    text = comparison.report(rows).format("text")
    assert text.count("tiny en-de test") == 1
    assert names(text) == ["base shaw-k2", "big shaw-k2", "base sinusoidal", "big sinusoidal"]
    assert rows[1].bleu.mean == pytest.approx(rows[0].bleu.mean + 1)
    assert not any(row.bleu.spread for row in rows)  # not seeds of one setting
    table = list(csv.DictReader(io.StringIO(comparison.report(rows).format("csv"))))
    assert [(row["setup"], row["experiment"]) for row in table[:2]] == [("base", "shaw-k2"), ("big", "shaw-k2")]
    figure_rows: Any = pooling.pool(results.read_experiments([tmp_path / "0", one(made, "distance-0")]))
    axes: Any = Figure().subplots()
    plot.draw(axes, figure_rows)
    labels = [label.get_text() for label in axes.get_legend().get_texts()]
    assert sorted(labels) == ["base shaw", "big shaw", "shaw"]  # three curves of one point, not one of three

    # A single setup is not shown.
    assert names(
        comparison.report(pooling.pool(results.read_experiments([tmp_path / "0" / "base"]))).format("text")
    ) == ["shaw-k2"]


def test_a_baseline_in_several_setups_is_named_with_its_setup(made: Path, tmp_path: Path) -> None:
    for setup in ("base", "big"):
        give_setup(one(made, "sinusoidal"), setup, tmp_path, 0)
    give_setup(one(made, "distance-2"), "big", tmp_path, 0)
    scores = results.read_experiments([tmp_path])
    with pytest.raises(RecipeError, match=r"--baseline sinusoidal: several .* base sinusoidal, big sinusoidal"):
        pooling.pool(scores, pooling.Comparison("sinusoidal"))
    rows = pooling.pool(scores, pooling.Comparison("big sinusoidal"))
    assert [row.tested is None for row in rows] == [row.first.long_name == "big sinusoidal" for row in rows]
    assert pooling.pool(scores, pooling.Comparison("shaw-k2"))  # only one setup has it
    with pytest.raises(RecipeError, match=r"there are .*base sinusoidal.*big shaw-k2"):
        pooling.pool(scores, pooling.Comparison("alibi"))


def test_rows_of_one_name_are_shown_with_their_flags(made: Path, tmp_path: Path) -> None:
    for dropout in (0.1, 0.2):
        directory = shutil.copytree(one(made, "sinusoidal"), tmp_path / f"dropout-{dropout}/seed1")
        change(directory, "flags", value={"dropout": dropout})
    scores = results.read_experiments([tmp_path])
    names = ["sinusoidal (--dropout 0.1)", "sinusoidal (--dropout 0.2)"]
    assert pooling.row_names(pooling.pool(scores)) == names
    with pytest.raises(RecipeError, match=r"--baseline sinusoidal: several rows .* \(--dropout 0.1\), .* 0.2\)\.$"):
        pooling.pool(scores, pooling.Comparison("sinusoidal"))
    assert [row.tested is None for row in pooling.pool(scores, pooling.Comparison(names[1]))] == [False, True]


def test_the_historical_score_has_a_column_if_it_exists(copy: Path) -> None:
    header = "tok. BLEU (historical)"
    before = pooling.pool(results.read_experiments([copy]))
    assert header not in comparison.report(before).format("text")
    signature = "historical tokenized BLEU, not comparable with SacreBLEU|tok:moses-de"
    directories = [one(copy, "distance-2"), *copy.rglob("*sinusoidal*/seed*")]
    for directory, value in zip(directories, (27.25, 30.0, 32.0), strict=True):
        written = [{"name": "tokenized BLEU (historical)", "score": value, "signature": signature}]
        (directory / "test.historical.json").write_text(json.dumps(written))
    rows = pooling.pool(results.read_experiments([copy]))
    assert [pooling.mean(row.pooled("tok. BLEU")) for row in rows] == [None, 27.25, 31.0]
    for text in (comparison.report(rows).format("text"), comparison.report(rows).format("markdown")):
        assert header in text
        assert "27.25" in next(line for line in text.split("\n") if "shaw-k2" in line)
        assert "31.00 ± 1.41" in next(line for line in text.split("\n") if "sinusoidal" in line)
        assert text.count("not comparable with BLEU.") == 1
        assert f"tok. BLEU: {signature}" in text
    table = list(csv.DictReader(io.StringIO(comparison.report(rows).format("csv"))))
    assert [row["tokenized_bleu_historical"] for row in table] == ["", "27.25", "31.0"]
    assert [row["tokenized_bleu_historical_signature"] for row in table] == ["", signature, signature]
    assert [row.bleu for row in rows] == [row.bleu for row in before]  # other numbers do not depend on it


def test_lowercased_scores_are_named_and_tested_without_case(copy: Path) -> None:
    signature = "lowercased tokenized BLEU, not comparable with SacreBLEU|nrefs:1|case:lc|tok:moses-de"
    for directory in {path.parent for path in copy.rglob("experiment.json")}:
        written = [{"name": "tokenized BLEU (lowercased)", "score": 41.02, "signature": signature}]
        (directory / "test.historical.json").write_text(json.dumps(written))
        path = directory / "test.sacrebleu.json"
        path.write_text(path.read_text().replace("|case:mixed|", "|case:lc|"))
    rows = pooling.pool(results.read_experiments([copy]))
    text = comparison.report(rows).format("text")
    assert "tok. BLEU (lowercased)" in text
    assert "historical" not in text
    assert text.count("BLEU and chrF ignore case (case:lc)") == 1
    # The hypotheses in capitals are the same system.
    baseline, system = (row.first for row in rows[:2])
    before = sacrebleu_p(resample(baseline, BLEU), resample(system, BLEU))
    path = system.directory / "test.hyp"
    path.write_text(path.read_text().upper())
    assert sacrebleu_p(resample(baseline, BLEU), resample(system, BLEU)) == before < 1


def test_a_reference_of_sacrebleu_is_named(copy: Path) -> None:
    path = one(copy, "distance-2") / "test.sacrebleu.json"
    scores = json.loads(path.read_text())
    path.write_text(json.dumps([{**score, "reference": "sacrebleu -t wmt14/full -l en-de"} for score in scores]))
    text = comparison.report(pooling.pool(results.read_experiments([copy]))).format("text")
    assert text.count("Reference: sacrebleu -t wmt14/full -l en-de\n") == 1


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("experiment.json", "", "experiment.json is not valid JSON"),
        ("experiment.json", '{"corpus": "tiny", "pa', "experiment.json is not valid JSON"),
        ("experiment.json", "[]", "experiment.json is damaged (it holds no JSON object)"),
        ("experiment.json", '{"corpus": "tiny"}', "experiment.json is damaged (it lacks 'pair')"),
        ("experiment.json", ("seed", "one"), "experiment.json is damaged (its 'seed' is 'one')"),
        ("experiment.json", ("flags", None), "experiment.json is damaged (its 'flags' is None)"),
        ("experiment.json", ("setup", ["big"]), "experiment.json is damaged (its 'setup' is ['big'])"),
        ("experiment.json", ("made_from", 3), "experiment.json is damaged (its 'made_from' is 3)"),
        ("training.json", "3", "training.json is damaged (it holds no JSON object)"),
        ("training.json", ("parameters", "many"), "training.json is damaged (its 'parameters' is 'many')"),
        ("training.json", ("vocabulary", "many"), "training.json is damaged (its 'vocabulary' is 'many')"),
        ("training.json", ("words_per_second", math.inf), "training.json is damaged (its 'words_per_second' is inf)"),
        ("test.sacrebleu.json", "[]", "test.sacrebleu.json is not what"),
        ("test.sacrebleu.json", '["BLEU"]', "test.sacrebleu.json is not what"),
        ("test.historical.json", "{}", "test.historical.json is not what"),
        *(
            ("test.sacrebleu.json", json.dumps([{"name": "BLEU", "score": 1, "signature": "s", **wrong}]), "test.sacre")
            for wrong in (
                *({"score": float("nan")}, {"score": 10**400}, {"signature": 5}, {"reference": ["r"]}),
                *({"confidence_var": "x"}, {"confidence_var": [1]}, {"confidence_var": -5}),
            )
        ),
    ],
)
def test_a_damaged_file_is_one_sentence(copy: Path, name: str, content: str | tuple[str, object], words: str) -> None:
    path = one(copy, "distance-2") / name
    if isinstance(content, tuple):
        content = json.dumps({**json.loads(path.read_text()), content[0]: content[1]})
    path.write_text(content)
    with pytest.raises(RecipeError) as error:
        results.read_experiments([copy])
    assert str(error.value).startswith(f"{path.parent}/{words}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("recorded", [False, True])
def test_other_references_are_refused_without_a_baseline_too(copy: Path, recorded: bool) -> None:
    directory = one(copy, "distance-2")
    reference = directory / "test.ref"
    reference.write_text(reference.read_text().replace("w1 ", "w2 ", 1))
    if recorded:
        record(directory, {})
        record(one(copy, "distance-0"), {})
        reference.unlink()  # the recorded hash suffices
    with pytest.raises(RecipeError, match="have different references for test: they cannot be compared"):
        pooling.pool(results.read_experiments([copy]))


def test_other_sources_are_refused(copy: Path) -> None:
    """Seeds and rows of equal references, translated from other sources."""
    for number, directory in enumerate(sorted(copy.rglob("*sinusoidal*/seed*"))):
        (directory / "test.src").write_text(f"source {number}\n" * LINES)
    with pytest.raises(RecipeError, match="have different sources for test: they cannot be compared"):
        pooling.pool(results.read_experiments([copy]))


@pytest.mark.parametrize("kind", ["sacrebleu", "historical"])
def test_an_edited_score_is_refused(copy: Path, kind: str) -> None:
    directory = one(copy, "distance-2")
    path = directory / f"test.{kind}.json"
    shutil.copyfile(directory / "test.sacrebleu.json", path) if kind == "historical" else None
    record(directory, {})
    record(directory, {}, kind) if kind == "historical" else None
    assert results.read_experiments([directory])[0].verified
    rows = json.loads(path.read_text())
    rows[0]["score"] += 1
    path.write_text(json.dumps(rows))
    with pytest.raises(RecipeError) as error:
        results.read_experiments([copy])
    assert (
        str(error.value) == f"{path} is not what the stage score wrote (it changed since): run the stage score again."
    )
    # Without its seal, it could be of an older run.
    path.write_text(json.dumps([{key: value for key, value in row.items() if key != "seal"} for row in rows]))
    assert not results.read_experiments([directory])[0].verified


def test_missing_translations_are_refused(copy: Path) -> None:
    hypotheses = one(copy, "distance-2") / "test.hyp"
    hypotheses.write_text("".join(hypotheses.read_text().splitlines(keepends=True)[:5]))
    with pytest.raises(RecipeError, match=r"test\.hyp has 5 lines and .*test\.ref has 60: run the stages translate"):
        results.read_experiments([copy])


@pytest.mark.parametrize("kind", ["hyp", "ref"])
@pytest.mark.parametrize("score", ["sacrebleu", "historical"])
def test_scores_of_changed_files_are_refused(copy: Path, kind: str, score: str) -> None:
    directory = one(copy, "distance-2")
    if score == "historical":
        rows = json.loads((directory / "test.sacrebleu.json").read_text())
        (directory / "test.historical.json").write_text(json.dumps(rows))
    record(directory, {}, score)
    results.read_experiments([copy])
    file = directory / f"test.{kind}"
    file.write_text(file.read_text().replace("w1 ", "w2 ", 1))
    with pytest.raises(RecipeError) as error:
        results.read_experiments([copy])
    assert str(error.value) == f"{file} is not the file that was scored (it changed since): run the stage score again."


def set_flags(directory: Path, **flags: object) -> None:
    """What --set train.FLAG records."""
    path = directory / "experiment.json"
    about = json.loads(path.read_text())
    given = {name.replace("_", "-"): value for name, value in flags.items()}
    about["name"] += "".join(f" --{name} {value}" for name, value in given.items())
    path.write_text(json.dumps({**about, "flags": about["flags"] | given}))


def test_what_set_gave_all_rows_stands_once_above_the_table(copy: Path) -> None:
    for directory in copy.rglob("seed*"):
        set_flags(directory, max_update=300)
    for number, distance in enumerate((0, 2)):
        set_flags(one(copy, f"distance-{distance}"), lr=number)
    rows = pooling.pool(results.read_experiments([copy]), pooling.Comparison("sinusoidal"))
    assert pooling.shown_names(rows) == ["shaw-k0 --lr 0", "shaw-k2 --lr 1", "sinusoidal"]
    for style in ("text", "markdown", "latex"):
        text = comparison.report(rows).format(style)
        assert text.count("max-update") == 1
        assert "tiny en-de test, all with --max-update 300" in text.split("\n")[0]
    first = next(csv.DictReader(io.StringIO(comparison.report(rows).format("csv"))))
    assert (first["experiment"], first["flags"]) == (
        "shaw-k0 --max-update 300 --lr 0",
        "--clipping-distance 0 --max-update 300 --lr 0",
    )
    whole = [pooling.find_row(rows, name) for name in ("sinusoidal", "sinusoidal --max-update 300")]
    assert whole == [rows[2], rows[2]]
    axes: Any = Figure().subplots()
    plot.draw(axes, rows)
    assert axes.get_title() == "tiny en-de test, all with --max-update 300"
    assert not any("max-update" in text.get_text() for text in axes.get_legend().get_texts())


def test_scores_that_cannot_be_verified_are_shown_and_marked(copy: Path) -> None:
    for directory in copy.rglob("seed*"):
        record(directory, {})
    assert "Not verified" not in comparison.report(pooling.pool(results.read_experiments([copy]))).format("text")
    (one(copy, "distance-0") / "test.hyp").unlink()
    scores = one(copy, "sinusoidal") / "test.sacrebleu.json"
    rows = json.loads(scores.read_text())
    scores.write_text(json.dumps([{key: row[key] for key in ("name", "score", "signature")} for row in rows]))
    pooled = pooling.pool(results.read_experiments([copy]))
    for text in (comparison.report(pooled).format("text"), comparison.report(pooled).format("markdown")):
        assert "Not verified: shaw-k0, sinusoidal; " in text
    table = list(csv.DictReader(io.StringIO(comparison.report(pooled).format("csv"))))
    assert [row["verified"] for row in table] == ["no", "yes", "no"]


def test_scores_depend_on_the_settings_of_the_translation(copy: Path) -> None:
    directory = one(copy, "distance-2")
    record(directory, {"beam": 4, "average": 3})
    (score,) = results.read_experiments([directory])
    trained_from = json.loads((directory / "experiment.json").read_text())["made_from"]
    assert score.made_from == {**trained_from, "translation": {"beam": 4, "average": 3}}


@pytest.mark.parametrize("kind", ["BLEU", "chrF", "tok. BLEU"])
def test_differing_signatures_are_refused(copy: Path, kind: str) -> None:
    path = one(copy, "distance-2") / "test.sacrebleu.json"
    if kind == "BLEU":
        path.write_text(path.read_text().replace("tok:13a", "tok:intl"))
    elif kind == "chrF":
        path.write_text(path.read_text().replace("nw:0", "nw:2"))
    else:
        for number, directory in enumerate(copy.rglob("seed1")):
            row = {"name": "tokenized BLEU (historical)", "score": 1.0, "signature": f"sacremoses:{number}"}
            (directory / "test.historical.json").write_text(json.dumps([row]))
    with pytest.raises(RecipeError, match=rf"were scored differently on test \({kind} signatures .*\): run the stage"):
        pooling.pool(results.read_experiments([copy]))


@pytest.mark.parametrize("style", ["text", "markdown", "csv"])
def test_every_format_refuses_what_is_not_comparable(copy: Path, style: str) -> None:
    path = one(copy, "distance-2") / "test.sacrebleu.json"
    path.write_text(path.read_text().replace("tok:13a", "tok:intl"))
    result = CliRunner().invoke(group, ["compare", str(copy), "--format", style])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert "were scored differently" in result.stderr


def test_faults_are_named(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"nowhere is not a directory"):
        results.read_experiments([tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecipeError, match=r"empty holds no scored experiment"):
        results.read_experiments([tmp_path / "empty"])
    with pytest.raises(RecipeError, match=r"--baseline alibi: .* shaw-k0, shaw-k2, sinusoidal"):
        pooling.pool(results.read_experiments([copy]), pooling.Comparison("alibi"))
    directory = one(copy, "distance-2")
    (directory / "test.sacrebleu.json").write_text("[{}]")
    with pytest.raises(RecipeError, match=r"test\.sacrebleu\.json is not what"):
        results.read_experiments([copy])
    (directory / "test.sacrebleu.json").write_text("[")
    with pytest.raises(RecipeError, match=r"test\.sacrebleu\.json is not valid JSON"):
        results.read_experiments([copy])
    (directory / "experiment.json").write_text("{}")
    (directory / "test.sacrebleu.json").write_text((one(copy, "sinusoidal") / "test.sacrebleu.json").read_text())
    with pytest.raises(RecipeError, match=r"lacks 'corpus'"):
        results.read_experiments([copy])


def test_a_metric_without_a_name_is_refused(copy: Path) -> None:
    path = one(copy, "distance-2") / "test.sacrebleu.json"
    path.write_text(json.dumps([{**metric, "name": 5} for metric in json.loads(path.read_text())]))
    with pytest.raises(RecipeError, match=r"test\.sacrebleu\.json is not what"):
        results.read_experiments([copy])


def test_seeds_are_chosen(made: Path) -> None:
    """Rows keep the chosen seeds only; those that lack one are left out, by name."""
    scores = results.read_experiments([made])
    chosen, lacking = pooling.with_seeds(scores, [1])
    assert [(score.name, score.seed) for score in chosen] == [("shaw-k0", 1), ("shaw-k2", 1), ("sinusoidal", 1)]
    assert lacking == []
    assert all(row.tested is not None for row in pooling.pool(chosen, pooling.Comparison("sinusoidal"))[:2])

    result = CliRunner().invoke(group, ["compare", str(made), "--seeds", "2,1", "--format", "csv"])
    assert [(row["experiment"], row["seeds"]) for row in csv.DictReader(io.StringIO(result.stdout))] == [
        ("sinusoidal", "1 2")
    ]
    assert result.stderr == "Left out, because they lack one of the seeds 2,1: shaw-k0, shaw-k2.\n"
    result = CliRunner().invoke(group, ["compare", str(made), "--seeds", "3"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: --seeds 3: no experiment here has all of them; there are 1, 2.\n"


def test_missing_references_are_those_of_the_prepared_data(copy: Path, tmp_path: Path) -> None:
    options = ["compare", str(copy), "--seeds", "1", "--baseline", "sinusoidal", "--format", "csv"]
    wanted = CliRunner().invoke(group, options).stdout
    prepared = tmp_path / "data" / "tiny" / "en-de" / "prepared"
    prepared.mkdir(parents=True)
    for reference in list(copy.rglob("test.ref")):
        record(reference.parent, {})
        reference.replace(prepared / "test.de")
    assert CliRunner().invoke(group, options).exit_code == 1
    options += ["--data-dir", str(tmp_path / "data")]
    found = CliRunner().invoke(group, options).stdout
    assert wanted.count(",no\n") == 3
    assert found == wanted.replace(",no\n", ",yes\n")  # verified, since the scores now record hashes

    (prepared / "test.de").write_text("another text\n" * LINES)
    result = CliRunner().invoke(group, options)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {prepared / 'test.de'} is not the file that was scored")


def test_links_to_experiments_are_followed(made: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(made)
    (tmp_path / "above").symlink_to(tmp_path)
    assert len(results.read_experiments([tmp_path])) == len(results.read_experiments([made]))


def test_an_experiment_named_twice_counts_once(made: Path) -> None:
    scores = results.read_experiments([made, one(made, "distance-2"), made])
    assert len(scores) == 4


def test_the_plot_draws_bleu_against_the_distance_and_others_as_lines(made: Path, tmp_path: Path) -> None:
    rows = pooling.pool(results.read_experiments([made]))
    axes: Any = Figure().subplots()
    plot.draw(axes, rows)
    curve = axes.containers[0].lines[0]
    assert list(curve.get_xdata()) == [0, 2]
    assert list(curve.get_ydata()) == [rows[0].bleu.mean, rows[1].bleu.mean]
    level = next(line for line in axes.lines if line.get_label() == "sinusoidal")
    assert set(level.get_ydata()) == {rows[2].bleu.mean}
    assert [label.get_text() for label in axes.get_legend().get_texts()] == ["shaw", "sinusoidal"]
    path = plot.plot(rows, tmp_path / "new" / "plot.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(RecipeError, match=r"plot\.xyz: the plot cannot be written"):
        plot.plot(rows, tmp_path / "plot.xyz")


@pytest.mark.filterwarnings("error:constrained_layout")
def test_a_long_legend_stands_beside_the_plot(tmp_path: Path) -> None:
    """Within it, matplotlib warns and draws no curve that can be seen."""
    rows = pooling.pool(results.read_experiments([ROOT / "results" / "quickstart" / "xa-xb"]))
    plot.plot(rows, tmp_path / "plot.png")
    axes: Any = Figure().subplots()
    plot.draw(axes, rows)
    lines = [line for line in axes.lines if line.get_linestyle() not in ("-", "None")]
    assert len({(line.get_color(), str(line._dash_pattern)) for line in lines}) == len(lines) > 40


def test_the_command(made: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "compare.py"]
    options: list[str | Path] = ["--format", "markdown", "--baseline", "sinusoidal", "--plot", tmp_path / "plot.svg"]
    seeds = sorted(made.rglob("seed1"))
    process = subprocess.run([*command, *seeds, *options], capture_output=True, encoding="utf-8", check=True)
    rows = pooling.pool(results.read_experiments(seeds), pooling.Comparison("sinusoidal"))
    assert process.stdout == comparison.report(rows).format("markdown")
    assert process.stderr == f"Plot: {tmp_path / 'plot.svg'}\n"
    assert (tmp_path / "plot.svg").is_file()
    process = subprocess.run([*command, tmp_path / "none"], capture_output=True, encoding="utf-8", check=False)
    assert process.returncode == 1
    assert (
        process.stderr
        == f"Error: {tmp_path / 'none'} is not a directory: name experiment directories, or one that holds them.\n"
    )


def test_nothing_is_scored_when_counts_differ(tmp_path: Path) -> None:
    (tmp_path / "test.ref").write_text("a\nb\n")
    (tmp_path / "test.hyp").write_text("a\n")
    with pytest.raises(RecipeError, match=r"test\.hyp has 1 lines and .*test\.ref has 2: run the stages translate"):
        results.require_equal_counts(tmp_path / "test.hyp", tmp_path / "test.ref")
    (tmp_path / "test.hyp").write_text("a\n\n")
    results.require_equal_counts(tmp_path / "test.hyp", tmp_path / "test.ref")
