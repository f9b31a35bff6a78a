"""`prepare.context`: a sentence behind the one before it in its document; only the last part counts."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import read_json
from posenc_experiments.base.run import Run
from posenc_experiments.data import clean, context, prepare
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
    found = hypotheses.read_text().splitlines()
    assert len(found) == 40
    assert not any(context.SEPARATOR in line for line in found)
    assert references == [line[2].decode() for line in lines[:40]]
    assert [len(line.split()) for line in found].count(2) > 30, found  # both parts would have 4 words


def test_what_context_needs_is_named(tmp_path: Path) -> None:
    lines = [(b"a", b"x", b"y")] * 3
    conf = make_conf(tmp_path / "r", {"train": lines, "valid": lines, "test": lines})
    (tmp_path / "r" / "text" / "train.documents").unlink()
    with pytest.raises(RecipeError, match=r"make\.py made no train\.documents: check the splits in .*, `corpus`"):
        prepare_data(make_run(tmp_path, conf, None))
    conf.write_text(CONF.replace("\nprepare:", "\nprepare:\n  context: 1"))
    (tmp_path / "r" / "sources.tsv").touch()
    (tmp_path / "r" / "archives.tsv").touch()
    with pytest.raises(RecipeError, match=r"context: needs documents, which only generated text has: leave it out"):
        make_run(tmp_path, conf, None)


def kyoto_lines(folder: Path, first: int, last: int) -> Lines:
    """Lines of the Kyoto corpus' test set, whose first article, a biography of a monk, has 74."""
    sides = [
        gzip.decompress((folder / f"test.{side}.gz").read_bytes()).split(b"\n")[first:last] for side in ("ja", "en")
    ]
    return [(b"BDS" if first + n < 74 else b"BLD", *pair) for n, pair in enumerate(zip(*sides, strict=True))]


def test_real_articles_keep_their_words_order_and_borders(tmp_path: Path, kyoto_text: Path) -> None:
    lines = kyoto_lines(kyoto_text, 66, 80)
    conf = CONTEXT.replace("en-de de-en", "ja-en").replace(
        "subwords: none", "vocabulary: 420\n  normalize: identity\n  max-tokens: 900"
    )
    runs: list[Run] = []
    for name, text in (("with", conf), ("without", conf.replace("context: 1", ""))):
        path = make_conf(tmp_path / name / "r", {"train": lines, "valid": lines, "test": lines}, text, "ja-en")
        runs.append(prepare_data(make_run(tmp_path / name, path, None, pair="ja-en")))
    models = [(prepared_dir(run) / "sentencepiece.model").read_bytes() for run in runs]
    assert models[0] == models[1]
    for side, subset in ((side, subset) for side in ("ja", "en") for subset in ("train", "test")):
        plain = [line[1 + (side == "en")].decode() for line in lines]
        subwords = prepare.load_subwords(runs[0], side)
        joined = [line.split(f" {context.SEPARATOR} ") for line in read_binarized(runs[0], subset, side)]
        decoded = [[subwords.decode(part.split()) for part in parts] for parts in joined]
        expected = [plain[max(0, n - 1) : n + 1] for n in range(len(plain))]
        expected[0] = plain[:1]
        expected[74 - 66] = plain[74 - 66 : 75 - 66]  # the first sentence of the next article
        assert decoded == expected
        assert [parts[-1] for parts in joined] == read_binarized(runs[1], subset, side)
        assert subwords.decode(context.last_part(" <sep> ".join(joined[1]).split())) == plain[1]
