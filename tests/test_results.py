"""Tables, pooling, significance and plots, from small experiment directories scored by the real SacreBLEU."""

import csv
import hashlib
import io
import json
import random
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairseq_posenc import results
from fairseq_posenc.results import ResultsError

ROOT = Path(__file__).resolve().parents[1]
WORDS = [f"w{number}" for number in range(30)]
LINES = 60


def sacrebleu(*words: str | Path) -> str:
    command = [sys.executable, "-m", "sacrebleu", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout


def references() -> list[list[str]]:
    chance = random.Random(0)
    return [chance.choices(WORDS, k=chance.randint(5, 15)) for _ in range(LINES)]


def add_experiment(root: Path, name: str, flags: dict[str, object], seed: int, errors: float) -> Path:
    """An experiment whose translations are the references with this part of the words wrong."""
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
    about |= {"flags": flags, "seed": seed, "name": name}
    (directory / "experiment.json").write_text(json.dumps(about))
    training = {"parameters": 1_234_567, "words_per_second": 1000.0 + seed, "updates": 10, "seconds": 1.0}
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
    """The experiments, to be damaged."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


def one(root: Path, name: str) -> Path:
    return next(root.rglob(f"*{name}*/seed1"))


def reported(directory: Path, metric: int = 0) -> dict[str, Any]:
    """What SacreBLEU itself wrote."""
    found: dict[str, Any] = json.loads((directory / "test.sacrebleu.json").read_text())[metric]
    return found


def record(directory: Path, translation: dict[str, object], kind: str = "sacrebleu") -> None:
    """Has the scores record what they were made from, as the stage score does."""
    path = directory / f"test.{kind}.json"
    hashes = [hashlib.sha256((directory / f"test.{file}").read_bytes()).hexdigest() for file in ("hyp", "ref")]
    facts = {"hypotheses": hashes[0], "references": hashes[1], "translation": translation}
    path.write_text(json.dumps([{**row, **facts} for row in json.loads(path.read_text())]))


def test_seeds_are_pooled_and_single_ones_keep_their_interval(made: Path) -> None:
    rows = results.pool(results.read_experiments([made]))
    assert [row.first.name for row in rows] == ["shaw-k0", "shaw-k2", "sinusoidal"]
    shaw = rows[1]
    assert (shaw.bleu, shaw.bleu_interval) == (
        reported(one(made, "distance-2"))["score"],
        reported(one(made, "distance-2"))["confidence_var"],
    )
    assert shaw.bleu_spread is None
    assert shaw.clipping_distance == 2
    seeds = [reported(path)["score"] for path in sorted(made.rglob("*sinusoidal*/seed*"))]
    assert rows[2].bleu == pytest.approx(statistics.fmean(seeds))
    assert rows[2].bleu_spread == pytest.approx(abs(seeds[0] - seeds[1]) / 2**0.5)
    assert rows[2].bleu_interval is None
    assert rows[2].words_per_second == 1001.5


def test_text_and_markdown_show_the_numbers_and_the_signature(made: Path) -> None:
    rows = results.pool(results.read_experiments([made]))
    bleu, chrf = reported(one(made, "distance-2")), reported(one(made, "distance-2"), 1)
    for text in (results.as_text(rows), results.as_markdown(rows)):
        line = next(line for line in text.split("\n") if "shaw-k2" in line)
        words = f"{bleu['score']:.2f} ± {bleu['confidence_var']:.2f}"
        for word in (words, f"{chrf['score']:.2f}", "1,234,567", "1,001"):
            assert word in line
        assert f"BLEU: {bleu['signature']}" in text
        assert "standard deviation over the seeds" in text
        assert "Warning" not in text
    assert results.as_markdown(rows).count("|---") > 0


def test_csv_is_one_line_a_row_with_whole_numbers(made: Path) -> None:
    rows = results.pool(results.read_experiments([made]), "sinusoidal")
    table = list(csv.DictReader(io.StringIO(results.as_csv(rows))))
    assert [row["experiment"] for row in table] == ["shaw-k0", "shaw-k2", "sinusoidal"]
    assert float(table[1]["bleu"]) == reported(one(made, "distance-2"))["score"]
    assert table[1]["flags"] == "--clipping-distance 2"
    assert table[2]["seeds"] == "1 2"
    assert table[2]["bleu_interval"] == ""
    assert table[2]["p_value"] == ""
    assert 0 < float(table[0]["p_value"]) < 0.05
    assert table[0]["bleu_signature"].startswith("nrefs:1|")
    assert {row["verified"] for row in table} == {"no"}


def test_significance_is_that_of_sacrebleus_own_command(made: Path) -> None:
    baseline, system = one(made, "sinusoidal"), one(made, "distance-2")
    files: list[str | Path] = [baseline / "test.ref", "-i", baseline / "test.hyp", system / "test.hyp"]
    table = json.loads(sacrebleu(*files, "-m", "bleu", "--paired-bs", "-f", "json"))
    wanted = next(row for row in table if "distance-2" in row["system"])["BLEU"]["p_value"]
    rows = results.pool(results.read_experiments([system, baseline]), "sinusoidal")
    assert rows[0].p_value == pytest.approx(wanted)
    assert rows[1].p_value is None
    text = results.as_text(rows)
    assert f"{wanted:.3f}" in text
    assert "baseline" in text


def test_of_several_seeds_the_largest_p_counts(made: Path) -> None:
    scores = results.read_experiments([made])
    seeds = [score for score in scores if score.name == "sinusoidal"]
    base = next(score for score in scores if score.name == "shaw-k2")
    wanted = max(results.paired_bootstrap(base, seed) for seed in seeds)
    row = next(row for row in results.pool(scores, "shaw-k2") if row.first.name == "sinusoidal")
    assert row.p_value == wanted


def give_setup(experiment: Path, setup: str, root: Path, points: float) -> Path:
    """A copy of an experiment in another setup, with so many points of BLEU more."""
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


def test_setups_are_settings_of_their_own_in_one_table(made: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("distance-2", "sinusoidal")):
        for points, setup in ((1, "base"), (2, "big")):
            give_setup(one(made, name), setup, tmp_path / str(number), points)
    rows = results.pool(results.read_experiments([tmp_path]))
    text = results.as_text(rows)
    assert text.count("tiny en-de test") == 1
    assert names(text) == ["base shaw-k2", "big shaw-k2", "base sinusoidal", "big sinusoidal"]
    assert rows[1].bleu == pytest.approx(rows[0].bleu + 1)
    assert not any(row.bleu_spread for row in rows)  # not seeds of one setting
    table = list(csv.DictReader(io.StringIO(results.as_csv(rows))))
    assert [(row["setup"], row["experiment"]) for row in table[:2]] == [("base", "shaw-k2"), ("big", "shaw-k2")]
    figure_rows: Any = results.pool(results.read_experiments([tmp_path / "0", one(made, "distance-0")]))
    from matplotlib.figure import Figure

    axes: Any = Figure().subplots()
    results.draw(axes, figure_rows)
    labels = [label.get_text() for label in axes.get_legend().get_texts()]
    assert sorted(labels) == ["base shaw", "big shaw", "shaw"]  # three curves of one point, not one of three

    # One setup alone needs no mention.
    assert names(results.as_text(results.pool(results.read_experiments([tmp_path / "0" / "base"])))) == ["shaw-k2"]


def test_a_baseline_that_several_setups_have_is_named_with_its_setup(made: Path, tmp_path: Path) -> None:
    for setup in ("base", "big"):
        give_setup(one(made, "sinusoidal"), setup, tmp_path, 0)
    give_setup(one(made, "distance-2"), "big", tmp_path, 0)
    scores = results.read_experiments([tmp_path])
    with pytest.raises(ResultsError, match=r"--baseline sinusoidal: several .* base sinusoidal, big sinusoidal"):
        results.pool(scores, "sinusoidal")
    rows = results.pool(scores, "big sinusoidal")
    assert [row.p_value is None for row in rows] == [row.first.long_name == "big sinusoidal" for row in rows]
    assert results.pool(scores, "shaw-k2")  # only one has it
    with pytest.raises(ResultsError, match=r"there are .*base sinusoidal.*big shaw-k2"):
        results.pool(scores, "alibi")


def test_the_historical_score_has_a_column_where_there_is_one(copy: Path) -> None:
    header = "tok. BLEU (historical)"
    before = results.pool(results.read_experiments([copy]))
    assert header not in results.as_text(before)
    signature = "historical tokenized BLEU, not comparable with SacreBLEU|tok:moses-de"
    directories = [one(copy, "distance-2"), *copy.rglob("*sinusoidal*/seed*")]
    for directory, value in zip(directories, (27.25, 30.0, 32.0), strict=True):
        written = [{"name": "tokenized BLEU (historical)", "score": value, "signature": signature}]
        (directory / "test.historical.json").write_text(json.dumps(written))
    rows = results.pool(results.read_experiments([copy]))
    assert [row.historical for row in rows] == [None, 27.25, 31.0]
    for text in (results.as_text(rows), results.as_markdown(rows)):
        assert header in text
        assert "27.25" in next(line for line in text.split("\n") if "shaw-k2" in line)
        assert "31.00 ± 1.41" in next(line for line in text.split("\n") if "sinusoidal" in line)
        assert text.count("not comparable with BLEU.") == 1
        assert f"tok. BLEU: {signature}" in text
    table = list(csv.DictReader(io.StringIO(results.as_csv(rows))))
    assert [row["tokenized_bleu_historical"] for row in table] == ["", "27.25", "31.0"]
    assert [row["tokenized_bleu_historical_signature"] for row in table] == ["", signature, signature]
    assert [row.bleu for row in rows] == [row.bleu for row in before]  # it enters no other number


def test_the_reference_is_named_where_it_is_one_of_sacrebleus(copy: Path) -> None:
    path = one(copy, "distance-2") / "test.sacrebleu.json"
    scores = json.loads(path.read_text())
    path.write_text(json.dumps([{**score, "reference": "sacrebleu -t wmt14/full -l en-de"} for score in scores]))
    text = results.as_text(results.pool(results.read_experiments([copy])))
    assert text.count("Reference: sacrebleu -t wmt14/full -l en-de\n") == 1


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("experiment.json", "", "experiment.json cannot be read"),
        ("experiment.json", '{"corpus": "tiny", "pa', "experiment.json cannot be read"),
        ("experiment.json", "[]", "experiment.json is damaged (it holds no JSON object)"),
        ("experiment.json", '{"corpus": "tiny"}', "experiment.json is damaged (it lacks 'pair')"),
        ("experiment.json", ("seed", "one"), "experiment.json is damaged (its 'seed' is 'one')"),
        ("experiment.json", ("flags", None), "experiment.json is damaged (its 'flags' is None)"),
        ("experiment.json", ("setup", ["big"]), "experiment.json is damaged (its 'setup' is ['big'])"),
        ("training.json", "3", "training.json is damaged (it holds no JSON object)"),
        ("training.json", ("parameters", "many"), "training.json is damaged (its 'parameters' is 'many')"),
        ("test.sacrebleu.json", "[]", "test.sacrebleu.json is not what"),
        ("test.sacrebleu.json", '["BLEU"]', "test.sacrebleu.json is not what"),
        ("test.historical.json", "{}", "test.historical.json is not what"),
    ],
)
def test_a_damaged_file_is_one_sentence(copy: Path, name: str, content: str | tuple[str, object], words: str) -> None:
    path = one(copy, "distance-2") / name
    if isinstance(content, tuple):
        content = json.dumps({**json.loads(path.read_text()), content[0]: content[1]})
    path.write_text(content)
    with pytest.raises(ResultsError) as error:
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
        reference.unlink()  # what the score records says enough
    with pytest.raises(ResultsError, match="have different references for test: they cannot be compared"):
        results.pool(results.read_experiments([copy]))


def test_lost_translations_are_refused(copy: Path) -> None:
    hypotheses = one(copy, "distance-2") / "test.hyp"
    hypotheses.write_text("".join(hypotheses.read_text().splitlines(keepends=True)[:5]))
    with pytest.raises(ResultsError, match=r"test\.hyp has 5 lines and .*test\.ref has 60: run the stages translate"):
        results.read_experiments([copy])


@pytest.mark.parametrize("kind", ["hyp", "ref"])
@pytest.mark.parametrize("score", ["sacrebleu", "historical"])
def test_scores_of_other_files_than_those_beside_them_are_refused(copy: Path, kind: str, score: str) -> None:
    directory = one(copy, "distance-2")
    if score == "historical":
        rows = json.loads((directory / "test.sacrebleu.json").read_text())
        (directory / "test.historical.json").write_text(json.dumps(rows))
    record(directory, {}, score)
    results.read_experiments([copy])
    file = directory / f"test.{kind}"
    file.write_text(file.read_text().replace("w1 ", "w2 ", 1))
    with pytest.raises(ResultsError) as error:
        results.read_experiments([copy])
    assert str(error.value) == f"{file} is not what was scored (it was made again since): run the stage score again."


def test_scores_that_nothing_vouches_for_are_shown_and_marked(copy: Path) -> None:
    for directory in copy.rglob("seed*"):
        record(directory, {})
    assert "Not verified" not in results.as_text(results.pool(results.read_experiments([copy])))
    (one(copy, "distance-0") / "test.hyp").unlink()
    scores = one(copy, "sinusoidal") / "test.sacrebleu.json"
    rows = json.loads(scores.read_text())
    scores.write_text(json.dumps([{key: row[key] for key in ("name", "score", "signature")} for row in rows]))
    pooled = results.pool(results.read_experiments([copy]))
    for text in (results.as_text(pooled), results.as_markdown(pooled)):
        assert "Not verified: shaw-k0, sinusoidal; " in text
    table = list(csv.DictReader(io.StringIO(results.as_csv(pooled))))
    assert [row["verified"] for row in table] == ["no", "yes", "no"]


def test_what_made_the_translations_is_part_of_what_a_score_was_made_from(copy: Path) -> None:
    record(one(copy, "distance-2"), {"beam": 4, "average": 3})
    scores = {score.directory: score for score in results.read_experiments([copy])}
    assert scores[one(copy, "distance-2")].made_from == {"translation": {"beam": 4, "average": 3}}
    assert scores[one(copy, "distance-0")].made_from is None


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
    with pytest.raises(ResultsError, match=rf"were scored differently on test \({kind} signatures .*\): run the stage"):
        results.pool(results.read_experiments([copy]))


@pytest.mark.parametrize("style", ["text", "markdown", "csv"])
def test_every_format_refuses_what_is_not_comparable(copy: Path, style: str) -> None:
    from click.testing import CliRunner

    path = one(copy, "distance-2") / "test.sacrebleu.json"
    path.write_text(path.read_text().replace("tok:13a", "tok:intl"))
    result = CliRunner().invoke(compare_command(), [str(copy), "--format", style])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert "were scored differently" in result.stderr


def compare_command() -> Any:
    """scripts/compare.py's command."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("compare", ROOT / "scripts" / "compare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def test_faults_are_named(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"nowhere is not a directory"):
        results.read_experiments([tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResultsError, match=r"empty holds no scored experiment"):
        results.read_experiments([tmp_path / "empty"])
    with pytest.raises(ResultsError, match=r"--baseline alibi: .* shaw-k0, shaw-k2, sinusoidal"):
        results.pool(results.read_experiments([copy]), "alibi")
    directory = one(copy, "distance-2")
    (directory / "test.sacrebleu.json").write_text("[{}]")
    with pytest.raises(ResultsError, match=r"test\.sacrebleu\.json is not what"):
        results.read_experiments([copy])
    (directory / "test.sacrebleu.json").write_text("[")
    with pytest.raises(ResultsError, match=r"test\.sacrebleu\.json cannot be read"):
        results.read_experiments([copy])
    (directory / "experiment.json").write_text("{}")
    (directory / "test.sacrebleu.json").write_text((one(copy, "sinusoidal") / "test.sacrebleu.json").read_text())
    with pytest.raises(ResultsError, match=r"lacks 'corpus'"):
        results.read_experiments([copy])


def test_an_experiment_named_twice_counts_once(made: Path) -> None:
    scores = results.read_experiments([made, one(made, "distance-2"), made])
    assert len(scores) == 4


def test_the_plot_draws_bleu_against_the_distance_and_others_as_lines(made: Path, tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    rows = results.pool(results.read_experiments([made]))
    axes: Any = Figure().subplots()
    results.draw(axes, rows)
    curve = axes.containers[0].lines[0]
    assert list(curve.get_xdata()) == [0, 2]
    assert list(curve.get_ydata()) == [rows[0].bleu, rows[1].bleu]
    level = next(line for line in axes.lines if line.get_label() == "sinusoidal")
    assert set(level.get_ydata()) == {rows[2].bleu}
    assert [label.get_text() for label in axes.get_legend().get_texts()] == ["sinusoidal", "shaw"]
    path = results.plot(rows, tmp_path / "new" / "plot.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ResultsError, match=r"plot\.xyz: the plot cannot be written"):
        results.plot(rows, tmp_path / "plot.xyz")


def test_the_command(made: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "compare.py"]
    options: list[str | Path] = ["--format", "markdown", "--baseline", "sinusoidal", "--plot", tmp_path / "plot.svg"]
    process = subprocess.run([*command, made, *options], capture_output=True, encoding="utf-8", check=True)
    rows = results.pool(results.read_experiments([made]), "sinusoidal")
    assert process.stdout == results.as_markdown(rows)
    assert process.stderr == f"Plot: {tmp_path / 'plot.svg'}\n"
    assert (tmp_path / "plot.svg").is_file()
    process = subprocess.run([*command, tmp_path / "none"], capture_output=True, encoding="utf-8", check=False)
    assert process.returncode == 1
    assert (
        process.stderr
        == f"error: {tmp_path / 'none'} is not a directory: name experiment directories, or one that holds them.\n"
    )
