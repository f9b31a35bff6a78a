"""`fairseq-posenc analyse` on real translations: its files, its page, what it refuses; and the page in a browser."""

import json
import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lxml.html  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner, Result

from posenc_experiments.analysis.page import p_values, render
from posenc_experiments.analysis.record import ModelSettings, analyse_experiment
from posenc_experiments.cli import group
from posenc_experiments.data.prepared import HEADER, MAGIC
from posenc_experiments.evaluation.pooling import Comparison, pool
from posenc_experiments.evaluation.results import of_tests, read_results
from posenc_experiments.experiment.layout import ANALYSIS
from tests.experiments.analysis import browser
from tests.experiments.analysis.models import model
from tests.experiments.analysis.quickstart import SETTINGS, make_experiments
from tests.experiments.tiny import make_recipe

NAMES = ["shaw-k0", "shaw-k2", "shaw-k16", "sinusoidal"]
TWO = {"transformer_sinusoidal_tiny": 1, "transformer_shaw_tiny-clipping-distance-2": 1}


def call(*options: str | Path) -> Result:
    return CliRunner().invoke(group, ["analyse", *map(str, options)])


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def records_of(root: Path) -> dict[Path, Any]:
    return {path.parent: read(path) for path in root.rglob(ANALYSIS)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Experiments, analysed, with a page of their texts."""
    root = make_experiments(tmp_path_factory.mktemp("made"))
    result = call(root, "--no-models", "--output", root / "page.html", "--baseline", "sinusoidal")
    assert result.exit_code == 0, result.output
    return root


@pytest.fixture(scope="module")
def whole(made: Path) -> Path:
    """The page with models."""
    records = records_of(made)
    for number, record in enumerate(records.values()):
        record["model"] = model(distance=-number)
    bare = {"checkpoint": "bare.pt <&>", "model": model(distance=3)}
    path = made / "whole.html"
    path.write_text(render(read_results([made]), records, [bare], baseline=3))
    return path


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """Two experiments, to be damaged."""
    for directory in made.rglob("seed1"):
        if directory.parent.name in TWO:
            shutil.copytree(directory, tmp_path / "copy" / directory.relative_to(made))
    return tmp_path / "copy"


def one(root: Path, name: str) -> Path:
    return next(root.rglob(f"*{name}*/seed1"))


# what it writes


def test_every_experiment_has_its_figures_versions_and_settings(made: Path) -> None:
    records = list(made.rglob(ANALYSIS))
    assert len(records) == 5
    record = json.loads((one(made, "distance-2") / ANALYSIS).read_text())
    assert record["experiment"] == {
        **{"corpus": "quickstart", "pair": "xa-xb", "setup": None, "name": "shaw-k2"},
        **{"arch": "transformer_shaw_tiny", "seed": 1},
    }
    assert set(record["versions"]) == {"fairseq_posenc", "torch", "fairseq", "sacrebleu"}
    assert record["settings"] == {"resamples": 1000, "seed": 12345, "confidence": 0.95}
    found = record["text"]["tests"]["test"]
    scores = json.loads((one(made, "distance-2") / "test.sacrebleu.json").read_text())
    assert [round(found["BLEU"], 2), round(found["chrF"], 2)] == [row["score"] for row in scores]
    assert record["text"]["valid_losses"] == [[100, 3.4], [200, 2.9], [300, 2.4]]
    # Of 4 layers with 4 heads: vectors of 16 numbers for 5 distances, on keys and on values.
    assert record["text"]["position_parameters"] == 4 * 4 * 16 * 5 * 2


def test_what_is_unchanged_is_done_before(copy: Path) -> None:
    files = sorted(copy.rglob(ANALYSIS))
    before = [path.stat().st_mtime_ns for path in files]
    assert "texts" not in call(copy, "--no-models", "--output", copy / "page.html").output
    assert [path.stat().st_mtime_ns for path in files] == before
    (copy / "page.html").unlink()
    with open(one(copy, "sinusoidal") / "train.log", "a") as log:
        log.write('| INFO | valid | {"valid_loss": "1.5", "valid_num_updates": "400"}\n')
    result = call(copy, "--no-models", "--output", copy / "page.html")
    assert "sinusoidal seed 1 (2 of 2): texts" in result.output
    assert "shaw-k2 seed 1 (1 of 2): texts" not in result.output
    assert json.loads((one(copy, "sinusoidal") / ANALYSIS).read_text())["text"]["valid_losses"][-1] == [400, 1.5]


@pytest.mark.parametrize(("options", "said"), [(["--no-models"], 0), ([], 1)])
def test_without_models_those_of_an_earlier_call_are_kept(copy: Path, options: list[str], said: int) -> None:
    """Where models are left out, and where averaged.pt was deleted."""
    path = one(copy, "sinusoidal") / ANALYSIS
    record = json.loads(path.read_text()) | {"model": model()}
    path.write_text(json.dumps(record))
    result = call(copy, *options, "--output", copy / "page.html")
    assert result.exit_code == 0, result.output
    assert result.output.count("analysis.json keeps the figures of an earlier call, which the page leaves out") == said
    assert json.loads(path.read_text())["model"] == model()
    assert "Attention by layer" not in (copy / "page.html").read_text()


def test_a_model_that_another_call_analysed_meanwhile_is_kept(copy: Path) -> None:
    directory = one(copy, "sinusoidal")
    path = directory / ANALYSIS
    record = json.loads(path.read_text())
    path.unlink()

    def say(text: str) -> None:
        assert text == "texts"
        path.write_text(json.dumps(record | {"model": model()}))

    analyse_experiment(of_tests(read_results([directory])), ModelSettings(None), path, say)
    assert json.loads(path.read_text()) == record | {"model": model()}


def test_a_checkpoint_alone_has_a_page_and_is_not_analysed_twice(checkpoint: Any, data: Path, tmp_path: Path) -> None:
    options = ("--data", data, "--pair", "en-de", "--output", tmp_path / "page.html")
    path = checkpoint("transformer_learned_tiny")
    result = call("--checkpoint", path, "--sentences", "3", *options)
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "untrained.pt.analysis.json").read_text())["model"]
    assert (record["settings"], record["sentences"]) == ({"sentences": 3}, 3)
    assert "untrained.pt: model: done before" in call("--checkpoint", path, "--sentences", "3", *options).output
    text = (tmp_path / "page.html").read_text()
    assert "nope.en-de.en.idx is missing" in call("--checkpoint", path, "--test", "nope", *options).output
    result = call("--checkpoint", path, "--test", "train", *options)  # which has two sentences
    assert result.exit_code == 0
    assert "done before" not in result.output
    assert json.loads((tmp_path / "untrained.pt.analysis.json").read_text())["model"]["sentences"] == 2
    assert "Learned vectors at the input" in text
    assert 'id="scores"' not in text


def write_index(path: Path, sizes: Any) -> None:
    """As fairseq's, with sizes alone."""
    path.write_bytes(HEADER.pack(MAGIC, 1, 4, len(sizes)) + struct.pack(f"<{len(sizes)}i", *sizes))


def test_lengths_beyond_those_of_the_training_are_marked(copy: Path, tmp_path: Path) -> None:
    data = tmp_path / "binarized"
    data.mkdir()
    lengths = [len(line.split()) for line in (one(copy, "sinusoidal") / "test.src").read_text().splitlines()]
    for side in ("xa", "xb"):
        (data / f"dict.{side}.txt").write_text("a 1\n")
        (data / f"test.xa-xb.{side}.bin").write_bytes(b"")
        write_index(data / f"train.xa-xb.{side}.idx", [3, 16, 5])
        write_index(data / f"test.xa-xb.{side}.idx", [length + 1 for length in lengths])
    script = one(copy, "sinusoidal") / "test.generate.sh"
    script.write_text(f"#!/usr/bin/env bash\nexec python -m fairseq_cli.generate {data} --gen-subset test --cpu\n")
    assert call(copy, "--no-models", "--output", copy / "page.html").exit_code == 0
    found = {
        name: json.loads((one(copy, name) / ANALYSIS).read_text())["text"]["tests"]["test"] for name in ("sin", "shaw")
    }
    assert [bucket["longer"] for bucket in found["shaw"]["by_length"]] == [None] * 5
    assert sum(bucket["longer"] for bucket in found["sin"]["by_length"]) == sum(length > 15 for length in lengths) > 0
    summary = one(copy, "sinusoidal") / "training.json"
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "vocabulary": ["other", "checksums"]}))
    assert call(copy, "--no-models", "--output", copy / "page.html").exit_code == 0
    record = json.loads((one(copy, "sin") / ANALYSIS).read_text())
    assert [bucket["longer"] for bucket in record["text"]["tests"]["test"]["by_length"]] == [None] * 5


def limit_training(experiment: Path, words: int) -> None:
    """Has an experiment say that it was trained on sources of at most so many words."""
    path = experiment / "experiment.json"
    about = json.loads(path.read_text())
    about["made_from"]["prepare"] = {**about["made_from"].get("prepare", {}), "train_max_words": words}
    path.write_text(json.dumps(about))


def test_a_limit_of_words_in_the_training_is_a_boundary_of_buckets(copy: Path) -> None:
    for name in ("sinusoidal", "distance-2"):
        limit_training(one(copy, name), 13)
    assert call(copy, "--no-models", "--output", copy / "page.html").exit_code == 0
    record = json.loads((one(copy, "sinusoidal") / ANALYSIS).read_text())
    assert record["settings"]["train_max_words"] == 13
    found = record["text"]["tests"]["test"]["by_length"]
    assert 13 in [bucket["to"] for bucket in found]
    assert [bucket["longer"] for bucket in found] == [bucket["sentences"] * (bucket["from"] > 13) for bucket in found]


def test_p_is_that_of_compare_for_every_two(made: Path, tmp_path: Path) -> None:
    results = read_results([make_experiments(tmp_path, dict.fromkeys(SETTINGS, 2))])
    found = p_values(results, pool(results))
    for baseline, name in enumerate(NAMES):
        tested = pool(results, Comparison(name))["holm_p_value"]
        assert found[baseline] == ["baseline" if p is None else p for p in tested]
    results = read_results([made])
    assert p_values(results, pool(results))[3] == [*3 * ["one seed"], "baseline"]


# the page


def test_the_page_is_whole_and_needs_nothing_else(whole: Path) -> None:
    text = re.sub('base64,[^"]*', "base64,", whole.read_text())
    document = lxml.html.fromstring(text)
    addresses = document.xpath("//@src | //@href | //@action | //@data | //@poster | //@srcset")
    assert {address[:1] if address[0] == "#" else address[:15] for address in addresses} <= {"#", "data:image/svg+"}
    assert not re.search(r"(https?:)?//[a-z]|url\(|@import", text)
    identities = document.xpath("//@id")
    assert len(identities) == len(set(identities))
    assert {address[1:] for address in addresses if address[0] == "#"} <= set(identities)


def test_the_page_has_everything(whole: Path) -> None:
    text = whole.read_text()
    for words in (
        *("Scores by source length", "Validation loss by update", "Two systems"),
        *("Mean attended distance", "Rank of the logits", "Learned scalars by distance", "Shift test"),
        *("Learned vectors by distance", "Learned vectors at the input", "Learned matrices of positions"),
        *("bare.pt &lt;&amp;&gt;", "1,000 source and 1,100 target tokens (2 longer sentences were left out)"),
        *("Measured on: 500 sentences of test.", "512×64 values of norm 3.5"),
    ):
        assert words in text, words
    assert "shaw-k0: decoder self-attention" not in text
    assert "bare.pt <" not in text
    assert ">Symmetry<" not in text  # no head has one


def test_the_same_page_is_the_same_bytes(made: Path) -> None:
    before = (made / "page.html").read_bytes()
    call(made, "--no-models", "--output", made / "page.html", "--baseline", "sinusoidal")
    assert (made / "page.html").read_bytes() == before


# what it refuses


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def damage_source(root: Path) -> None:
    (one(root, "sinusoidal") / "test.src").write_text("another\n" * 500)


@pytest.mark.parametrize(
    ("damage", "options", "message"),
    [
        (damage_source, [], "have different sources for test: they cannot be compared"),
        (lambda root: (one(root, "sinusoidal") / "test.src").unlink(), [], "test.src is missing"),
        (lambda root: change(one(root, "sinusoidal") / "experiment.json", pair="a-b"), [], "different pairs"),
        (lambda root: None, ["--test", "test9"], "has no scores of test9; it has test"),
        (lambda root: None, ["--baseline", "nope"], "--baseline nope"),
        (lambda root: None, ["--output", "."], "--output . is a directory"),
        (lambda root: None, ["--checkpoint", "nope.pt"], "--no-models leaves nothing of a --checkpoint"),
    ],
)
def test_refusals_are_one_sentence_and_leave_no_page(copy: Path, damage: Any, options: list[str], message: str) -> None:
    damage(copy)
    result = call(copy, "--no-models", "--output", copy / "page.html", *options)
    assert result.exit_code == 1
    said = [line for line in result.output.splitlines() if line.startswith("Error: ")]
    assert len(said) == 1
    assert re.search(message, said[0])
    assert not list(copy.glob("page*"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "Name directories of experiments, or a --checkpoint"),
        (["--checkpoint", "x.pt"], "--checkpoint needs --data"),
        (["--checkpoint", "empty.pt", "--data", ".", "--pair", "en-de"], "--data .: dict.en.txt is missing"),
    ],
)
def test_misuse_of_checkpoints_is_one_sentence(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.pt").touch()
    result = call(*options)
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: {message}")


# in a browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    program = browser.find()
    if program is None:
        pytest.skip(browser.MISSING)
    with browser.browser(program, tmp_path_factory.mktemp("profile")) as page:
        yield page


COLUMN = "[...document.querySelectorAll('#table tbody tr')].map(row => row.cells[{}].textContent)"


def test_the_table_sorts(chromium: browser.Page, whole: Path) -> None:
    chromium.open(whole.as_uri(), 1280, 900, "light")
    assert chromium.evaluate(COLUMN.format(0)) == NAMES
    click = "document.querySelectorAll('#table thead button')[{}].click()"
    chromium.evaluate(click.format(2))
    scores = [float(text.split()[0]) for text in chromium.evaluate(COLUMN.format(2))]
    assert scores == sorted(scores, reverse=True)
    assert chromium.evaluate("document.querySelectorAll('#table th')[2].ariaSort") == "descending"
    chromium.evaluate(click.format(2))
    assert [float(text.split()[0]) for text in chromium.evaluate(COLUMN.format(2))] == scores[::-1]
    chromium.evaluate(click.format(0))
    assert chromium.evaluate(COLUMN.format(0)) == NAMES  # k2 before k16
    chromium.evaluate(click.format(7))
    assert chromium.evaluate(COLUMN.format(7))[-1] == "baseline"
    assert chromium.errors == []


def test_the_baseline_changes(chromium: browser.Page, whole: Path, made: Path) -> None:
    chromium.open(whole.as_uri(), 1280, 900, "light")
    results = read_results([made])
    wanted = p_values(results, pool(results))
    for baseline in (3, 1):
        choose = (
            f"let s = document.getElementById('baseline'); s.value = '{baseline}'; s.dispatchEvent(new Event('change'))"
        )
        chromium.evaluate(choose if baseline != 3 else "0")
        shown = [p if isinstance(p, str) else f"{p:.3f}" for p in wanted[baseline]]
        assert chromium.evaluate(COLUMN.format(7)) == shown


def test_two_systems_are_chosen(chromium: browser.Page, whole: Path) -> None:
    chromium.open(whole.as_uri(), 1280, 900, "light")
    choose = "let e = document.getElementById('{}'); e.value = '{}'; e.dispatchEvent(new Event('change')); void 0"
    shown = "document.getElementById('difference').innerText"
    for one, other in ((2, 1), (1, 2)):
        for name, value in (("one", one), ("other", other)):
            chromium.evaluate("{" + choose.format(name, value) + "}")
        text = chromium.evaluate(shown)
        for better, worse in ((one, other), (other, one)):
            assert f"Sentences that {NAMES[better]} translates better than {NAMES[worse]}" in text
        sides = re.split("Sentences that ", text)[1:]
        for side, better in zip(sides, (one, other), strict=True):
            scores = {name: float(score) for name, score in re.findall(r"(\S+) \(chrF ([\d.]+)\)", side)}
            worse = other if better == one else one
            assert scores[NAMES[better]] > scores[NAMES[worse]]
    chromium.evaluate("{" + choose.format("one", 2) + "}")
    assert chromium.evaluate(shown) == "Choose two different systems."


CHECK = Path(__file__).with_name("check.js").read_text()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_everything_is_drawn_and_fits(chromium: browser.Page, whole: Path, width: int, scheme: str) -> None:
    chromium.open(whole.as_uri(), width, 900, scheme)
    assert chromium.evaluate(CHECK) == []
    chromium.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert chromium.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    light = chromium.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light == (scheme == "light")
    assert [url for url in chromium.requests if not url.startswith("data:")] == [whole.as_uri()]
    assert chromium.errors == []


# the last stage of a recipe


def test_a_recipe_ends_with_its_page(tmp_path: Path) -> None:
    conf, corpus = make_recipe(tmp_path)
    words = ["run", "--conf", conf, "--source", corpus, "--gpus", "0", "--cpus", "1", "--dry-run", "--analyse"]
    words += [
        "--experiments",
        "shaw-k2,sinusoidal",
        "--data-dir",
        tmp_path / "data",
        "--output-dir",
        tmp_path / "output",
    ]
    result = CliRunner().invoke(group, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    last = result.output.splitlines()[-1]
    pair = tmp_path / "output" / "tiny" / "en-de"
    assert f" posenc_experiments analyse --cpu --output {pair / 'analysis.html'} {pair}" in last
    assert last.count("/seed1") == 2
