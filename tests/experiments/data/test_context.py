"""`prepare.context`: a sentence behind the one before it in its document; only the last part counts."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import read_json
from posenc_experiments.data import clean, context
from posenc_experiments.data.prepared import prepared_dir
from tests import forked
from tests.experiments.data.test_prepare import read_binarized
from tests.experiments.tiny import CONF, command, directories, make_run, prepare_data

CONTEXT = CONF.replace("sources: sources.tsv", "generator: make.py").replace("\nprepare:", "\nprepare:\n  context: 1")
MAKE = """import pathlib, shutil, sys
shutil.copytree(pathlib.Path(__file__).parent / "text", sys.argv[1], dirs_exist_ok=True)
"""
Lines = Sequence[tuple[bytes, bytes, bytes]]  # document and both sides


def make_conf(folder: Path, splits: dict[str, Lines], conf: str = CONTEXT, pair: str = "en-de") -> Path:
    """A recipe whose generator copies this text."""
    (folder / "text").mkdir(parents=True)
    for split, lines in splits.items():
        for kind, part in zip((context.DOCUMENTS, *pair.split("-")), zip(*lines, strict=True), strict=True):
            (folder / "text" / f"{split}.{kind}").write_bytes(b"".join(line + b"\n" for line in part))
    (folder / "make.py").write_text(MAKE)
    (folder / "tiny.yaml").write_text(conf)
    return folder / "tiny.yaml"


def test_sentences_are_joined_within_documents_and_pairs_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean, "BATCH", 2)
    train = [
        (b"a", b"one", b"eins"),
        (b"a", b"two  x", b"zwei"),
        (b"b", b"three", b"drei"),
        (b"b", b"bad \xff", b"vier"),  # dropped, and no context of the next
        (b"b", b"five", "fünf\u2028f".encode()),
        (b"b", b"six " * 4, b"sechs"),  # dropped as too long, and no context either
        (b"b", b"seven", b"sieben"),
        (b"b", b"", b"acht"),
        (b"b", b"nine", b"neun"),
        (b"b", b"ten", b"zehn"),
    ]
    test = [
        (b"c", b"one", b"eins"),
        (b"c", b"", b"zwei"),
        (b"c", b"two", b"x"),
        (b"c", b"three", b"y"),
        (b"d", b"x", b"y"),
    ]
    conf = make_conf(
        tmp_path / "r", {"train": train, "valid": test, "test": test}, CONTEXT.replace("none", "none\n  max-tokens: 3")
    )
    run = prepare_data(make_run(tmp_path, conf, None))
    assert list(zip(read_binarized(run, "train", "en"), read_binarized(run, "train", "de"), strict=True)) == [
        ("one", "eins"),
        ("one <sep> two x", "eins <sep> zwei"),
        ("three", "drei"),
        ("five", "fünf f"),
        ("seven", "sieben"),
        ("nine", "neun"),
        ("nine <sep> ten", "neun <sep> zehn"),
    ]
    assert read_binarized(run, "test", "en") == ["one", "", "two", "two <sep> three", "x"]
    assert read_json(prepared_dir(run) / "prepare.json")["train"]["joined"] == 2
    assert "; 2 joined with the pair before" in (prepared_dir(run) / "prepare.txt").read_text()
    assert (prepared_dir(run) / "test.de").read_bytes() == b"eins\nzwei\nx\ny\ny\n"


def test_only_the_last_part_is_scored(tmp_path: Path) -> None:
    """Of a trained model that has learnt to write separators."""
    lines = [(f"d{n // 4}".encode(), f"w{n % 5} w{n % 3}".encode(), f"w{n % 3} w{n % 5}".encode()) for n in range(240)]
    conf = make_conf(tmp_path / "r", {"train": lines, "valid": lines[:40], "test": lines[:40]})
    options = ["--conf", conf, *directories(tmp_path), "--set", "train.max-epoch=12", "--stages", "download..translate"]
    process = forked.run_command(command("run", *options))
    assert process.returncode == 0, process.stderr
    (hypotheses,) = (tmp_path / "output").rglob("test.hyp")
    references = hypotheses.with_name("test.ref").read_text().splitlines()
    translations = hypotheses.read_text().splitlines()
    assert len(translations) == 40
    assert not any(context.SEPARATOR in line for line in translations)
    assert references == [line[2].decode() for line in lines[:40]]
    assert [len(line.split()) for line in translations].count(2) > 30, translations  # both parts would have 4 words


def test_what_context_needs_is_named(tmp_path: Path) -> None:
    lines = [(b"a", b"x", b"y")] * 3
    conf = make_conf(tmp_path / "r", {"train": lines, "valid": lines, "test": lines})
    (tmp_path / "r" / "text" / "train.documents").unlink()
    with pytest.raises(RecipeError, match=r"make\.py made no train\.documents: check "):
        prepare_data(make_run(tmp_path, conf, None))
