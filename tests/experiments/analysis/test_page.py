"""`fairseq-posenc analyse` on real translations: its files, its page, what it refuses; and the page in a browser."""

import importlib.metadata
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fairseq
import lxml.html  # type: ignore[import-untyped]
import pytest
from click.testing import Result

from posenc_experiments.analysis.page import cells_of, compared_with_each
from posenc_experiments.evaluation.results import read_results
from posenc_experiments.evaluation.statistics.comparison import compared_with_baseline
from posenc_experiments.evaluation.statistics.pooling import pool
from posenc_experiments.experiment.layout import ANALYSIS
from tests.experiments.analysis.quickstart import SETTINGS, make_experiments, seed1
from tests.experiments.tiny import directories, make_recipe, run_here

NAMES = ["shaw-k0", "shaw-k2", "shaw-k16", "sinusoidal"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def call(*options: str | Path) -> Result:
    return run_here("analyse", *options)


def record_of(directory: Path) -> Any:
    return json.loads((directory / ANALYSIS).read_text())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Experiments, analysed, with a page of their texts."""
    root = make_experiments(tmp_path_factory.mktemp("made"))
    result = call(root, "--no-models", "--output", root / "page.html", "--baseline", "sinusoidal")
    assert result.exit_code == 0, result.output
    return root


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """Two experiments, to be damaged."""
    for directory in made.rglob("seed1"):
        if directory.parent.name in ("transformer_sinusoidal_tiny", "transformer_shaw_tiny-clipping-distance-2"):
            shutil.copytree(directory, tmp_path / "copy" / directory.relative_to(made))
    return tmp_path / "copy"


# what it writes


def test_every_experiment_has_its_figures_versions_and_settings(made: Path) -> None:
    assert len(list(made.rglob(ANALYSIS))) == 5
    directory = seed1(made, "distance-2")
    record = record_of(directory)
    assert (record["experiment"]["name"], record["experiment"]["seed"]) == ("shaw-k2", 1)
    assert set(record["versions"]) == {"fairseq_posenc", "torch", "fairseq", "sacrebleu"}
    assert (record["settings"]["resamples"], record["settings"]["confidence"]) == (1000, 0.95)
    figures = record["text"]["tests"]["test"]
    scores = json.loads((directory / "test.sacrebleu.json").read_text())
    assert [round(figures["BLEU"], 2), round(figures["chrF"], 2)] == [row["score"] for row in scores]
    # Of 4 layers with 4 heads: vectors of 16 numbers for 5 distances, on keys and on values.
    assert record["text"]["position_parameters"] == 4 * 4 * 16 * 5 * 2


def test_what_is_unchanged_is_done_before(copy: Path) -> None:
    page, files = copy / "page.html", sorted(copy.rglob(ANALYSIS))
    before = [path.stat().st_mtime_ns for path in files]
    assert "texts" not in call(copy, "--no-models", "--output", page).output
    assert [path.stat().st_mtime_ns for path in files] == before
    with open(seed1(copy, "sinusoidal") / "command.sh", "a") as script:
        script.write("# changed\n")
    result = call(copy, "--no-models", "--output", page)
    assert "sinusoidal (2 of 2): texts" in result.output
    assert "shaw-k2 (1 of 2): texts" not in result.output
    again = page.read_bytes()
    call(copy, "--no-models", "--output", page)
    assert page.read_bytes() == again


@pytest.mark.parametrize(("options", "said"), [(["--no-models"], 0), ([], 1)])
def test_without_models_those_of_an_earlier_call_are_kept(copy: Path, options: list[str], said: int) -> None:
    """Where models are left out, and where averaged.pt was deleted."""
    directory = seed1(copy, "sinusoidal")
    (directory / ANALYSIS).write_text(json.dumps(record_of(directory) | {"model": {"inputs": "earlier"}}))
    result = call(directory, *options, "--output", copy / "page.html")
    assert result.exit_code == 0, result.output
    assert result.output.count("figures of an earlier call stay in analysis.json, and the page leaves them out") == said
    assert record_of(directory)["model"] == {"inputs": "earlier"}
    assert "Attention" not in (copy / "page.html").read_text()


def test_flags_that_all_rows_share_are_in_no_name(copy: Path) -> None:
    for file in copy.rglob("experiment.json"):
        about = json.loads(file.read_text())
        file.write_text(json.dumps(about | {"name": f"{about['name']} --lr 0.1"}))
    result = call(copy, "--no-models", "--output", copy / "page.html", "--baseline", "nus")
    assert result.exit_code == 0, result.output
    page = (copy / "page.html").read_text()
    assert page.count("--lr 0.1") == 1
    assert "All rows: --lr 0.1" in page
    assert '<option value="1" selected>sinusoidal</option>' in page


def test_a_page_of_experiments_and_a_checkpoint(
    made: Path, checkpoint: Callable[..., Path], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an encoding with all kinds of parameters."""
    flags = ["--source-position-encoding", "xlnet", "--input-positions", "learned"]
    flags += ["--cross-attention-positions", "true"]
    path = checkpoint("transformer_diet_abs_tiny", *flags).rename(tmp_path / "<b>.pt")
    options = ("--data", data, "--pair", "en-de", "--output", tmp_path / "page.html")
    result = call("--checkpoint", path, "--sentences", "3", *options)
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "<b>.pt.analysis.json").read_text())["model"]
    assert (record["settings"], record["sentences"]) == ({"sentences": 3}, 3)
    text = (tmp_path / "page.html").read_text()
    for words in (
        *("Mean attended distance", "Rank of the logits", "Position logits by distance", "Learned vectors"),
        *("Cosines of", "Learned matrices of positions", "Other position parameters", "Shift test", "&lt;b&gt;.pt"),
    ):
        assert words in text, words
    assert "<b>.pt" not in text
    assert 'id="scores"' not in text
    result = call(made, "--checkpoint", path, "--sentences", "3", *options)
    assert result.exit_code == 1  # their data is of another pair
    monkeypatch.setattr("posenc_experiments.analysis.analyse.render", lambda *_: "")
    assert "nope.en-de.en.idx is missing" in call("--checkpoint", path, "--test", "nope", *options).output
    again = call("--checkpoint", path, "--sentences", "3", *options).output
    assert "<b>.pt (1 of 1): model: done before" in again
    assert "done before" not in call("--checkpoint", path, "--sentences", "2", *options).output


def test_a_fairseq_of_another_distribution_is_recorded(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = importlib.metadata.version

    def without(name: str) -> str:
        if name == "ve-fairseq":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", without)
    path = seed1(copy, "sinusoidal")
    result = call(path, "--no-models", "--output", copy / "page.html")
    assert result.exit_code == 0, result.exception
    assert record_of(path)["versions"]["fairseq"] == fairseq.__version__


def test_a_limit_of_words_in_the_training_is_a_boundary_of_buckets(copy: Path) -> None:
    path = seed1(copy, "sinusoidal") / "experiment.json"
    about = json.loads(path.read_text())
    about["made_from"]["prepare"] = {**about["made_from"].get("prepare", {}), "train_max_words": 13}
    path.write_text(json.dumps(about))
    assert "differ in train-max-words" in call(copy, "--no-models", "--output", copy / "page.html").output
    assert call(path.parent, "--no-models", "--output", copy / "page.html").exit_code == 0
    record = record_of(path.parent)
    assert record["settings"]["train_max_words"] == 13
    rows = record["text"]["tests"]["test"]["by_length"]
    assert 13 in [row["to"] for row in rows]
    assert [row["longer"] for row in rows] == [row["sentences"] * (row["from"] > 13) for row in rows]


def test_differences_are_those_of_compare_for_every_two(made: Path, tmp_path: Path) -> None:
    results = read_results([make_experiments(tmp_path, dict.fromkeys(SETTINGS, 2))])
    for baseline, table in enumerate(compared_with_each(results, *pool(results))):
        assert compared_with_baseline(results, NAMES[baseline]) == [table]
        cells = cells_of(table)
        assert [number for number, cell in enumerate(cells) if cell == ("baseline", "")] == [baseline]
        said = [verdict for _, verdict in cells if verdict]
        assert all(map(str.startswith, said, [row.verdict for row in table.rows if row.verdict]))
    results = read_results([made])
    assert [last for _, last in cells_of(compared_with_each(results, *pool(results))[3])] == [*3 * ["one seed"], ""]


def test_the_page_is_whole_and_needs_nothing_else(made: Path) -> None:
    text = re.sub('base64,[^"]*', "base64,", (made / "page.html").read_text())
    for words in ("Scores by source length", "Two systems", "position parameters"):
        assert words in text, words
    document = lxml.html.fromstring(text)
    addresses = document.xpath("//@src | //@href | //@action | //@data | //@poster | //@srcset")
    assert {address[:1] if address[0] == "#" else address[:15] for address in addresses} <= {"#", "data:image/svg+"}
    assert not re.search(r"(https?:)?//[a-z]|url\(|@import", text)
    identities = document.xpath("//@id")
    assert len(identities) == len(set(identities))
    assert {address[1:] for address in addresses if address[0] == "#"} <= set(identities)


# what it refuses


def change_pair(root: Path) -> None:
    path = seed1(root, "sinusoidal") / "experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pair": "a-b"}))


def change_source(root: Path) -> None:
    (seed1(root, "sinusoidal") / "test.src").write_text("another\n" * 500)


@pytest.mark.parametrize(
    ("damage", "options", "message"),
    [
        (change_source, [], "have different sources for test: they cannot be compared"),
        (lambda root: (seed1(root, "sinusoidal") / "test.src").unlink(), [], "test.src is missing"),
        (change_pair, [], "differ in pair (xa-xb and a-b): analyse them apart"),
        (None, ["--test", "test9"], "has no scores of test9; there are test"),
        (None, ["--baseline", "nope"], "--baseline nope"),
        (None, ["--output", "."], "--output . is a directory"),
        (None, ["--checkpoint", __file__], "--checkpoint needs --data"),
    ],
)
def test_refusals_are_one_sentence_and_leave_no_page(copy: Path, damage: Any, options: list[str], message: str) -> None:
    if damage is not None:
        damage(copy)
    result = call(copy, "--output", copy / "page.html", *options)
    assert result.exit_code == 1
    said = [line for line in result.output.splitlines() if line.startswith("Error: ")]
    assert len(said) == 1
    assert message in said[0]
    assert not list(copy.glob("page*"))


def test_something_must_be_named() -> None:
    assert call().output == "Error: Name directories of experiments, or a --checkpoint.\n"


# in a browser


def test_the_page_sorts_and_compares(made: Path, tmp_path: Path) -> None:
    """A script clicks, and the browser prints the page after it."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no Chromium on PATH, so the page of analyse is not tested in one (CONTRIBUTING.md has more)")
    script = """
        const choose = (id, value) => {
            const element = document.getElementById(id);
            element.value = value;
            element.dispatchEvent(new Event("change"));
        };
        choose("one", 2);
        choose("baseline", 1);
        [...document.querySelectorAll("#table button")].find((one) => one.textContent === "BLEU").click();
    """
    page = tmp_path / "page.html"
    page.write_text((made / "page.html").read_text().replace("</body>", f"<script>{script}</script></body>"))
    words = ["timeout", "60", program, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page.as_uri()]
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    document = lxml.html.fromstring(printed)
    rows = [[cell.text_content() for cell in row] for row in document.xpath("//table[@id='table']/tbody/tr")]
    assert [row[0] for row in rows] == ["shaw-k2", "shaw-k16", "sinusoidal", "shaw-k0"]
    assert rows[0][-2:] == ["baseline", ""]
    assert [row[-1] for row in rows[1:]] == 3 * ["one seed"]
    text = document.get_element_by_id("difference").text_content()
    sides = re.split("Sentences that (.*?) translates better", text)[1:]
    assert sides[::2] == ["shaw-k16", "shaw-k2"]
    for better, side in zip(sides[::2], sides[1::2], strict=True):
        scored = [(float(score), name) for name, score in re.findall(r"(shaw-k\d+) \(chrF ([\d.]+)\)", side)]
        assert [max(two)[1] for two in zip(scored[::2], scored[1::2], strict=True)] == [better] * 5


# the last stage of a recipe


def test_a_recipe_ends_with_its_page(tmp_path: Path) -> None:
    conf, corpus = make_recipe(tmp_path)
    words = ["run", "--conf", conf, "--source", corpus, "--gpus", "0", "--cpus", "1", "--dry-run", "--analyse"]
    words += ["--experiments", "shaw-k2,sinusoidal", *directories(tmp_path)]
    result = run_here(*words)
    assert result.exit_code == 0, result.output
    last = result.output.splitlines()[-1]
    pair = tmp_path / "output" / "tiny" / "en-de"
    assert f" posenc_experiments analyse --cpu --output {pair / 'analysis.html'} {pair}" in last
    assert last.count("/seed1") == 2
