"""`fairseq-posenc own` as a user calls it."""

import gzip
import os
import re
from pathlib import Path

import pytest
from click.testing import Result

from fairseq_posenc.checkpoints import load_checkpoint
from posenc_experiments.base.read_recipe import read_recipe
from posenc_experiments.commands.own import choose_settings
from tests import forked
from tests.experiments.data.own_text import as_gzip, own_conf
from tests.experiments.tiny import command, directories, run_here
from tests.toy import make_corpus

ROOT = Path(__file__).resolve().parents[3]
RECIPE = ROOT / "recipes" / "own"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return make_corpus(tmp_path / "text", lines={"train": 60, "valid": 5, "test": 5, "test_2016": 4})


def own(tmp_path: Path, *options: str | Path) -> Result:
    """Calls the command in this process."""
    return run_here("own", *directories(tmp_path), "--gpus", "0", "--cpus", "1", *options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--text", "TEXT", "--pair", "ende"], "--pair: 'ende' is not a pair of two languages"),
        (["--text", "TEXT", "--pair", "en"], "--pair: 'en' is not a pair of two languages"),
        (["--text", "TEXT", "--pair", "en-de", "--source", "TEXT"], "--source: leave it out"),
        (["--text", "TEXT", "--pair", "en-de", "--name", "../x"], "--name: '../x' is not a name"),
        (["--text", "TEXT", "--pair", "en-de", "--name", "My Lab dáta!"], ".* such as --name my-lab-data.$"),
        (["--text", "TEXT", "--pair", "en-de", "--conf", "lrage"], r"--conf lrage: .* \(did you mean large\?\)"),
        (["--text", "TEXT", "--pair", "en-fr"], "has no train.fr, valid.fr for --pair en-fr"),
    ],
)
def test_misuse_is_one_sentence(tmp_path: Path, text: Path, options: list[str], message: str) -> None:
    result = own(tmp_path, *[str(text) if option == "TEXT" else option for option in options])
    assert result.exit_code == 1
    assert re.match(f"Error: .*{message}", result.stderr)
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("form", "lines"), [("", 3), ("", 0), (".gz", 5)])
def test_documents_have_a_line_for_each_sentence(tmp_path: Path, text: Path, form: str, lines: int) -> None:
    path = text / f"test_2016.documents{form}"
    path.write_bytes((gzip.compress if form else bytes)(b"article\n" * lines))
    result = own(tmp_path, "--text", text, "--pair", "en-de", "--dry-run")
    assert result.stderr == (
        f"Error: {path} has {lines} lines, and test_2016 has 4 sentences: write one line for each sentence, with the "
        "name of its document.\n"
    )
    assert result.exit_code == 1
    path.write_bytes((gzip.compress if form else bytes)(b"\xef\xbb\xbfarticle\r\n" + b"article\n" * 3))
    assert own(tmp_path, "--text", text, "--pair", "en-de", "--dry-run").exit_code == 0


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(tmp_path: Path, text: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    result = own(tmp_path, "--text", text, "--pair", "en-de", "--dry-run", "--seeds", "1,2")
    assert result.exit_code == 0, result.output
    assert f"{text}: train 60, valid 5, test 5, test_2016 4 pairs of en-de" in result.stdout
    assert f"settings: {RECIPE / 'small.yaml'} (by the number of training pairs" in result.stdout
    assert "small en-de: sinusoidal, shaw-k16, diet_rel; seed 1, 2; stages download, prepare" in result.stdout
    assert (
        f"results: {tmp_path / 'output' / 'text' / 'en-de'}; data: {tmp_path / 'data' / 'text' / 'en-de'}"
        in result.stdout
    )
    assert f"# copy the text of {text} to {tmp_path / 'data' / 'text' / 'text' / 'en-de'}-" in result.stdout
    assert result.stdout.count("fairseq_cli.train ") == 6
    assert sorted(tmp_path.rglob("*")) == before


def test_settings_follow_from_the_size(tmp_path: Path, text: Path) -> None:
    sizes = (0, 49_999, 50_000, 499_999, 500_000)
    assert [choose_settings(pairs, None) for pairs in sizes] == ["small", "small", "medium", "medium", "large"]
    assert [choose_settings(pairs, "tiny") for pairs in sizes] == ["small-sized"] * 2 + ["medium"] * 2 + ["large"]
    options = ("--text", text, "--pair", "en-de", "--dry-run", "--size", "vaswani_wmt_en_de_big")
    for conf in ((), ("--conf", "small")):
        result = own(tmp_path, *options, *conf)
        assert "small-sized.yaml" in result.stdout
        assert "--arch transformer_shaw_vaswani_wmt_en_de_big" in result.stdout
        assert "--encoder-embed-dim" not in result.stdout  # the size sets the width


@pytest.mark.parametrize("name", ["small", "small-sized", "medium", "large"])
def test_the_settings_are_complete(name: str) -> None:
    values = ("name=a", "pairs=en-de", "tests=test", "text=a", "checksums={train: a}")
    recipe = read_recipe(RECIPE / f"{name}.yaml", [f"corpus.{value}" for value in values])
    assert recipe.default_experiments == ["sinusoidal", "shaw-k16", "diet_rel"]
    # Every validation sentence fits into a batch.
    assert int(recipe.train.flags["max-tokens-valid"]) > recipe.prepare.eval_max_tokens
    assert int(recipe.train.flags["max-tokens"]) > recipe.prepare.max_tokens


def test_from_text_to_scores_and_again_after_a_change(tmp_path: Path, text: Path) -> None:
    def run(directory: Path, *options: str) -> str:
        words = ["--name", "mine", "--pair", "en-de", "--conf", own_conf(tmp_path)]
        words += ["--text", directory, *directories(tmp_path), "--experiments", "sinusoidal"]
        result = forked.run_command(
            command("own", *words, "--set", "train.max-epoch=2", "--set", "generate.average=1", *options)
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return str(result.stdout)

    for side in ("en", "de"):
        (text / f"test.{side}").unlink()
    (text / "test_2016.documents").write_text("one\none\ntwo\ntwo\n")
    said = run(text)
    assert "mine en-de test_2016\nAll rows: " in said
    (directory,) = (tmp_path / "output/mine/en-de").glob("sinusoidal-????????/seed1")
    assert (directory / "test_2016.ref").read_bytes() == (text / "test_2016.de").read_bytes()
    assert (directory / "test_2016.documents").read_bytes() == (text / "test_2016.documents").read_bytes()
    (only,) = load_checkpoint(directory / "averaged.pt")["extra_state"]["averaged_from"]
    assert Path(only).name == "checkpoint_last.pt"

    # The same text, compressed and under another path: nothing is trained or translated again.
    times = {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}
    assert "done before" in run(as_gzip(text, tmp_path / "compressed"))
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()} == times

    # Other text in the same files, of equal size and time, is another experiment.
    (tmp_path / "compressed" / "train.de.gz").unlink()
    lines = (text / "train.de").read_text().splitlines()
    (tmp_path / "compressed" / "train.de").write_text("".join(f"{line}\n" for line in [*lines[1:], lines[0]]))
    os.utime(tmp_path / "compressed" / "train.de", (0, 0))
    said = run(tmp_path / "compressed", "--dry-run")
    assert "output/mine/en-de/sinusoidal-" in said
    assert directory.parent.name not in said
