"""Neural metrics: a stand-in for comet-score writes its real format; MetricX's and BLEURT's files are taken."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.evaluation.compare import compare
from posenc_experiments.evaluation.scores import score
from posenc_experiments.evaluation.scores.neural import check_neural, score_neural
from posenc_experiments.experiment.experiment import Experiment
from tests.experiments.evaluation.test_score import HYPOTHESES, REFERENCE, translated
from tests.experiments.tiny import CONF, run_here

#: scores each translation by its share of the reference's characters, and counts its calls
STAND_IN = f"""#!{sys.executable}
import argparse, json, pathlib, sys
assert sys.argv[1:7] == ["--python", "3.11", "--with", "setuptools<81", "--from", "unbabel-comet==2.2.4"], sys.argv
parser = argparse.ArgumentParser(prog=sys.argv[7])
for name in ("--sources", "--references", "--model", "--to_json", "--gpus"):
    parser.add_argument(name)
parser.add_argument("--translations", nargs="+")
parser.add_argument("--quiet", action="store_true")
parser.add_argument("--only_system", action="store_true")
args = parser.parse_args(sys.argv[8:])
with open(pathlib.Path(__file__).with_name("calls"), "a") as calls:
    calls.write(f"{{args.model}} {{len(args.translations)}}\\n")
if args.model == "Unbabel/none":
    raise KeyError("Model 'Unbabel/none' not supported by COMET.")
read = lambda path: [line.strip() for line in open(path, encoding="utf-8")]
sources, references = read(args.sources), read(args.references)
data = {{
    path: [
        {{"src": source, "mt": mt, "ref": ref, "COMET": len(mt) / len(ref)}}
        for source, mt, ref in zip(sources, read(path), references)
    ]
    for path in args.translations
}}
json.dump(data, open(args.to_json, "w", encoding="utf-8"), ensure_ascii=False, indent=4)
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the stand-in, the first of PATH."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "uvx").write_text(STAND_IN)
    (folder / "uvx").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def seeds(tmp_path: Path, neural: str, *others: list[str]) -> list[Experiment]:
    """A scored experiment with a seed for each of these translations, and HYPOTHESES as the first."""
    first = translated(tmp_path, REFERENCE, HYPOTHESES, CONF + f"\nscore:\n  neural: {{{neural}}}\n")
    experiments = [first]
    for number, lines in enumerate(others, 2):
        experiments.append(replace(first, seed=number))
        shutil.copytree(first.directory, experiments[-1].directory)
        about = json.loads(first.about.read_text())
        experiments[-1].about.write_text(json.dumps({**about, "seed": number}))
        experiments[-1].test_file("test", "hyp").write_text("".join(" ".join(line.split()) + "\n" for line in lines))
    for experiment in experiments:
        score.ScoreStage().make(experiment, ())
    return experiments


def scores(experiment: Experiment, name: str) -> list[str]:
    return experiment.test_file("test", f"{name}.scores").read_text().splitlines()


def test_comet_runs_once_for_all_seeds_and_is_compared(tmp_path: Path, tools: Path) -> None:
    experiments = seeds(tmp_path, "comet: wmt22-comet-da", REFERENCE, HYPOTHESES[::-1])
    run = experiments[0].run
    for _ in range(2):
        score_neural(run, experiments)
    assert (tools / "calls").read_text() == "Unbabel/wmt22-comet-da 3\n"
    first, *values = scores(experiments[0], "COMET")
    assert first == "# Python3.11|Comet2.2.4|fp32|Unbabel/wmt22-comet-da"
    cleaned = [" ".join(line.split()) for line in REFERENCE]
    lengths = [(len(one), len(other)) for one, other in zip(HYPOTHESES, cleaned, strict=True)]
    assert [float(one) for one in values] == pytest.approx([100 * a / b for a, b in lengths], abs=1e-3)
    assert scores(experiments[1], "COMET")[1:] == ["100.0000"] * 3
    about = json.loads(experiments[1].about.read_text())
    experiments[1].about.write_text(json.dumps({**about, "name": "better", "arch": "transformer_better_tiny"}))
    directories = [one.directory for one in experiments]
    result = run_here("compare", *directories, "--baseline", "shaw-k2", "--metric", "COMET", "--margin", "0.6")
    assert "difference: COMET less that of shaw-k2" in result.stdout
    assert "COMET: Python3.11|Comet2.2.4|fp32|Unbabel/wmt22-comet-da" in result.stdout
    # another seed is scored alone, and another model scores all
    experiments[0].test_file("test", "COMET.scores").unlink()
    score_neural(run, experiments)
    recipe = replace(run.recipe, score=replace(run.recipe.score, neural={"comet": "other/model"}))
    others = [replace(one, run=replace(run, recipe=recipe)) for one in experiments]
    score_neural(others[0].run, others)
    assert (tools / "calls").read_text().splitlines()[1:] == ["Unbabel/wmt22-comet-da 1", "other/model 3"]


def test_a_model_in_a_file_is_known_by_its_content(tmp_path: Path, tools: Path) -> None:
    model = tmp_path / "model.ckpt"
    model.write_text("one")
    experiments = seeds(tmp_path / "experiment", f"comet: {model}")
    for content, calls in (("one", 1), ("one", 1), ("other", 2)):
        model.write_text(content)
        score_neural(experiments[0].run, experiments)
        assert len((tools / "calls").read_text().splitlines()) == calls
    assert scores(experiments[0], "COMET")[0].startswith("# Python3.11|Comet2.2.4|fp32|model.ckpt:")


def test_files_of_other_tools_are_taken_as_they_are(tmp_path: Path, tools: Path) -> None:
    [experiment] = seeds(tmp_path, "metricx: google/metricx-24-hybrid-large-v2p6, bleurt: BLEURT-20, comet: xl")
    lines = [{"source": "x\u2028", "hypothesis": line, "reference": "y", "prediction": 1.5} for line in HYPOTHESES]
    entries = [{"src": "x", "mt": line, "ref": "y", "COMET": 0.25} for line in HYPOTHESES]
    files = {
        "metricx.jsonl": "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines),
        "bleurt.txt": "0.5\n0.25\n-0.125\n",
        "comet.json": json.dumps({"elsewhere/test.hyp": entries}),
    }
    for kind, text in files.items():
        experiment.test_file("test", kind).write_text(text)
    for _ in range(2):
        score_neural(experiment.run, [experiment])
    signature = "# MetricX|google/metricx-24-hybrid-large-v2p6|test.metricx.jsonl:"
    for name, first, values in (
        ("MetricX", signature, ["1.5000"] * 3),
        ("BLEURT", "# BLEURT|BLEURT-20|test.bleurt.txt:", ["50.0000", "25.0000", "-12.5000"]),
        ("COMET", "# COMET|xl|test.comet.json:", ["25.0000"] * 3),
    ):
        assert scores(experiment, name)[0].startswith(first)
        assert scores(experiment, name)[1:] == values
    assert not (tools / "calls").exists()
    experiment.test_file("test", "bleurt.txt").write_text("0.9\n" * 3)  # corrected
    score_neural(experiment.run, [experiment])
    assert scores(experiment, "BLEURT")[1:] == ["90.0000"] * 3


def test_carriage_returns_of_sources_and_references_end_no_line(tmp_path: Path, tools: Path) -> None:
    [experiment] = seeds(tmp_path, "comet: wmt22-comet-da")
    score_neural(experiment.run, [experiment])
    expected = scores(experiment, "COMET")
    for kind in ("src", "ref"):
        path = experiment.test_file("test", kind)
        path.write_bytes(path.read_bytes().replace(b" ", b"\r ", 1))
    experiment.test_file("test", "COMET.scores").unlink()
    score_neural(experiment.run, [experiment])
    assert scores(experiment, "COMET") == expected
    assert not list(experiment.run.pair_results_dir.glob("*.comet.*/"))


def test_all_problems_are_named_and_what_can_be_scored_is(tmp_path: Path, tools: Path) -> None:
    experiments = seeds(tmp_path, "bleurt: B, metricx: M, comet: wmt22-comet-da", REFERENCE)
    with pytest.raises(
        RecipeError, match=r"bleurt.txt is missing, as of 2 of 2 exp[^$]*\nError: .*metricx.jsonl is mis"
    ):
        score_neural(experiments[0].run, experiments)
    assert all(scores(one, "COMET") for one in experiments)


@pytest.mark.parametrize("output", ["", "{", '{"other": []}', '{"test.hyp": [{"mt": "x"}]}'])
def test_a_comet_that_writes_something_else_is_named(tmp_path: Path, tools: Path, output: str) -> None:
    [experiment] = seeds(tmp_path, "comet: wmt22-comet-da")
    text = f"import pathlib, sys\npathlib.Path(sys.argv[sys.argv.index('--to_json') + 1]).write_text({output!r})\n"
    (tools / "uvx").write_text(f"#!{sys.executable}\n{text if output else ''}")
    with pytest.raises(RecipeError, match=r"comet-score wrote no scores of test \(.*\): read .*test.comet.log"):
        score_neural(experiment.run, [experiment])


@pytest.mark.parametrize("value", ["{comet: }", "{comet: [a]}", "{bleurt: ''}"])
def test_a_model_without_a_name_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(
        RecipeError, match=r"score.neural: '\w+' needs the name of a model, as in neural: {comet: wmt22"
    ):
        translated(tmp_path, REFERENCE, HYPOTHESES, CONF + f"\nscore:\n  neural: {value}\n")


def test_a_missing_model_or_tool_is_named_before_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [experiment] = seeds(tmp_path, "comet: /nowhere/model.ckpt")
    with pytest.raises(
        RecipeError, match=r"there is no file /nowhere/model.ckpt; name another, or a model such as wmt"
    ):
        check_neural(experiment.run)
    monkeypatch.setenv("PATH", "")
    [experiment] = seeds(tmp_path / "other", "comet: wmt22-comet-da")
    with pytest.raises(RecipeError, match="by uvx, which is not here: install it by pip install uv"):
        check_neural(experiment.run)


@pytest.mark.parametrize(
    ("neural", "files", "message"),
    [
        ("bleurt: B", {}, r"test.bleurt.txt is missing, .*: write it by bleurt.score_files .* or remove score.neural"),
        ("bleurt: B", {"bleurt.txt": "0.1\nx\n"}, r"test.bleurt.txt is not as bleurt.score_files .* writes it"),
        ("bleurt: B", {"bleurt.txt": "0.1\nnan\n0.1\n"}, r"test.bleurt.txt has the score nan for sentence 2: write it"),
        ("bleurt: B", {"bleurt.txt": "0.1\n"}, r"test.bleurt.txt is not of the translations in .*test.hyp: write it"),
        ("metricx: M", {"metricx.jsonl": '{"prediction": 1}\n'}, r"metricx.jsonl is not as MetricX's .*hypothesis"),
        ("comet: xl", {"comet.json": "[]"}, r"test.comet.json is not as comet-score --to_json writes it"),
        ("comet: none", {}, r"'Unbabel/none' not supported by COMET.*whole log.*Without a network, .*neural={comet: P"),
    ],
)
def test_scores_that_cannot_be_had_are_named(
    tmp_path: Path, tools: Path, neural: str, files: dict[str, str], message: str
) -> None:
    [experiment] = seeds(tmp_path, neural)
    for kind, text in files.items():
        experiment.test_file("test", kind).write_text(text)
    with pytest.raises(RecipeError, match=message):
        score_neural(experiment.run, [experiment])
    assert not list(experiment.directory.glob("*.scores"))


def test_the_table_is_written_without_the_neural_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiments = seeds(tmp_path, "comet: wmt22-comet-da")
    score.ScoreStage().run(experiments[0])
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RecipeError, match="runs comet-score by uvx, which is not here: install it by pip install uv"):
        compare(experiments[0].run, experiments)
    assert "BLEU" in (experiments[0].run.pair_results_dir / "compare.txt").read_text()


def test_a_file_from_before_the_translations_is_refused(tmp_path: Path) -> None:
    [experiment] = seeds(tmp_path, "bleurt: BLEURT-20")
    path = experiment.test_file("test", "bleurt.txt")
    path.write_text("0.5\n" * 3)
    os.utime(path, (0, 0))
    with pytest.raises(RecipeError, match=r"test.bleurt.txt is older than the translations: write it again"):
        score_neural(experiment.run, [experiment])
