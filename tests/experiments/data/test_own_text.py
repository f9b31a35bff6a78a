"""The user's own text: which files are found and refused, and a copy that does not depend on their form."""

import gzip
import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.recipe import Prepare
from posenc_experiments.base.run import Run
from posenc_experiments.data import download, prepare
from posenc_experiments.data.own_text import find_splits, read_pairs, read_set
from posenc_experiments.data.prepared import download_dir, inputs, prepared_dir
from tests.experiments.data.own_text import as_gzip, as_tsv, own_conf
from tests.experiments.tiny import make_run, prepare_data
from tests.toy import make_corpus


def own_run(directory: Path, text: Path, pair: str = "en-de", name: str = "mine", tests: str = "test") -> Run:
    sums = {split: read_set(files)[1] for split, files in find_splits(text, pair).items()}
    values = {"name": name, "pairs": pair, "tests": tests, "text": text, "downloads": f"{name}/text/{pair}"}
    conf = directory / "full.yaml"
    corpus = "".join(f"  {key}: {value}\n" for key, value in {**values, "checksums": json.dumps(sums)}.items())
    conf.write_text(own_conf(directory).read_text().replace("\ncorpus:\n", f"\ncorpus:\n{corpus}"))
    return make_run(directory, conf, None, pair=pair)


def test_the_copy_does_not_depend_on_the_form_of_the_files(tmp_path: Path) -> None:
    text = make_corpus(tmp_path / "text", lines=30)
    odd = "a\u2028b\x85c\rd\x0be\r\n".encode()  # a line ends at a newline only
    for side in ("en", "de"):
        (text / f"test.{side}").write_bytes(odd * 3)
    marked = as_tsv(text, tmp_path / "tsv")
    (marked / "test.tsv").write_bytes(b"\xef\xbb\xbf" + (marked / "test.tsv").read_bytes()[:-1])
    recorded = []
    for stored in (text, as_gzip(text, tmp_path / "gz"), marked):
        run = own_run(tmp_path, stored, name=stored.name)
        download.download(run)
        recorded.append(inputs(run))
        for path in text.iterdir():
            assert (download_dir(run) / path.name).read_bytes() == path.read_bytes()
    assert recorded[0] == recorded[1] == recorded[2]


@pytest.mark.parametrize(("size", "learnt"), [(10, 26), (20, 20), (4000, 23)])
def test_the_number_of_subwords_fits_the_text(tmp_path: Path, size: int, learnt: int) -> None:
    """The text has 16 characters and 28 subwords at most."""
    text = make_corpus(tmp_path / "text", lines=30)
    files = [(side, text / f"train.{side}") for side in ("de", "en")]
    assert prepare.learn_from(tmp_path, files, 1, Prepare(vocabulary=size), resizes=True) == learnt


def test_another_number_of_subwords_is_reported(tmp_path: Path) -> None:
    run = own_run(tmp_path, make_corpus(tmp_path / "text", lines=30))
    run = replace(run, recipe=replace(run.recipe, prepare=Prepare(vocabulary=10)))
    prepare_data(run)
    said = (prepared_dir(run) / "prepare.txt").read_text().splitlines()
    assert said[1] == "26 subwords, because 10 do not fit this text"


def test_test_sets_are_all_files_named_so_unless_they_are_of_other_languages(tmp_path: Path) -> None:
    text = make_corpus(tmp_path / "text", lines=30)
    names = ("test_2016.en", "test_2016.de", "test2.en", "test2.fr", "test.2017.tsv", "notes.en", "testing")
    for name in (*names, "test.documents", "test3.documents", "train.documents", "test_2016.documents.gz"):
        (text / name).write_text("a\tb\n")
    assert list(find_splits(text, "en-de")) == ["train", "valid", "test.2017", "test", "test_2016"]


def refused(text: Path, message: str) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        [read_set(files) for files in find_splits(text, "en-de").values()]
    assert str(text) in str(caught.value)
    assert re.search(r"(\.|;|\n  cd .*; done)$", str(caught.value))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"valid.en": None, "valid.de": None}, r"has no valid\.en, valid\.de for --pair en-de: add them"),
        ({"test.en": None, "test.de": None}, r"has no test\.en, test\.de for"),
        ({"test_2016.en": b"a\n"}, r"has no test_2016\.de for"),
        ({"test_2016.en": b"a\n", "test_2016.documents": b"a\n"}, r"has no test_2016\.de for"),
        (
            {"test.en": None, "test.de": None, "test.documents": b"a\n"},
            r"has no test\.en, .*valid\.en\. To take .* for test:",
        ),
        ({"train.de": None}, r"has no train\.de for .*; it has test\.de, test\.en, train\.en, valid\.de"),
        ({"train.en.gz": gzip.compress(b"a\n")}, r"has train\.de and train\.en and train\.en\.gz: remove"),
        ({"train.tsv": b"a\tb\n"}, r"has train\.de and train\.en and train\.tsv: remove"),
        ({"train.en": b"a\nb\n"}, r"train\.en has 2 lines and .*train\.de has 30: .* line by line"),
        ({"valid.en": b"", "valid.de": b""}, r"valid\.en is empty"),
        ({"test.en": b"a\n\xff\n"}, r"test\.en, line 2: this is not UTF-8"),
        ({"test.en": b"a\nb\0\n"}, r"test\.en, line 2: it has a NUL byte"),
        (
            {"train.en": None, "train.en.gz": gzip.compress(b"a\n" * 9999)[:-9]},
            r"train\.en\.gz is not a whole gzip file",
        ),
        ({"train.en": None, "train.en.gz": b"a\n"}, r"train\.en\.gz is not a whole gzip file"),
        ({"test2.tsv": b"a\tb\na\tb\tc\n"}, r"test2\.tsv, line 2: it has 3 columns; write source, one tab"),
    ],
)
def test_unusable_text_is_named(tmp_path: Path, files: dict[str, bytes | None], message: str) -> None:
    text = make_corpus(tmp_path / "text", lines=30)
    for name, content in files.items():
        (text / name).unlink() if content is None else (text / name).write_bytes(content)
    refused(text, message)


@pytest.mark.parametrize("form", ["plain", "gz", "tsv"])
@pytest.mark.parametrize("lacking", [["valid"], ["valid", "test"]])
def test_missing_sets_are_split_off_by_the_line_that_the_refusal_prints(
    tmp_path: Path, form: str, lacking: list[str]
) -> None:
    text = make_corpus(tmp_path / "it's my text", lines=250)
    train = [(text / f"train.{side}").read_text().splitlines() for side in ("en", "de")]
    for split in lacking:
        for side in ("en", "de"):
            (text / f"{split}.{side}").unlink()
    text = {"plain": lambda *_: text, "gz": as_gzip, "tsv": as_tsv}[form](text, tmp_path / "stored")
    for _ in range(2):
        with pytest.raises(
            RecipeError, match=f"To take one of a hundred .* {' and one for '.join(lacking)}:"
        ) as caught:
            find_splits(text, "en-de")
        subprocess.run(["sh", "-e"], input=str(caught.value).partition("\n")[2], check=True, encoding="utf-8")
        splits = find_splits(text, "en-de")
        sets = {split: list(read_pairs(files)) for split, files in splits.items()}
        pairs = [(source.encode(), target.encode()) for source, target in zip(*train, strict=True)]
        assert sets["train"] == [pair for number, pair in enumerate(pairs) if number % 100 >= len(lacking)]
        for at, split in enumerate(lacking):
            assert sets[split] == pairs[at::100]
            for file in splits[split]:  # again, from the text that was kept
                file.unlink()


@pytest.mark.parametrize("form", ["plain", "gz"])
def test_documents_are_kept_and_change_no_data(tmp_path: Path, form: str) -> None:
    text = make_corpus(tmp_path / "text", lines=30)
    before = own_run(tmp_path, text)
    names = "".join(f"article {number // 3}\n" for number in range(30))
    for split in ("test", "valid"):
        (text / f"{split}.documents").write_text(names)
    text = {"plain": lambda *_: text, "gz": as_gzip}[form](text, tmp_path / "gz")
    run = prepare_data(own_run(tmp_path, text))
    assert (inputs(run), download_dir(run)) == (inputs(before), download_dir(before))
    assert (prepared_dir(run) / "test.documents").read_text() == names
    assert not (prepared_dir(run) / "valid.documents").exists()


def test_changed_text_is_other_data_and_a_change_after_the_start_is_refused(tmp_path: Path) -> None:
    text = make_corpus(tmp_path / "text", lines=30)
    run = own_run(tmp_path, text)
    download.download(run)
    path = text / "valid.de"
    status, content = path.stat(), path.read_text()
    path.write_text(content.replace("t1 ", "t2 ", 1))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    changed = own_run(tmp_path, text)
    assert inputs(changed) != inputs(run)
    path.write_text(content.replace("t1 ", "t3 ", 1))
    with pytest.raises(RecipeError, match=r"valid\.en: the text changed since this run began"):
        download.download(changed)
    assert not download_dir(changed).exists()
    assert (download_dir(run) / "valid.de").read_text() == content


def test_a_full_disk_leaves_no_half_copy(tmp_path: Path, small_disk: Path) -> None:
    text = make_corpus(tmp_path / "text", lines=20_000)
    run = replace(own_run(tmp_path, text), data_dir=small_disk)
    with pytest.raises(OSError, match="No space left"):
        download.download(run)
    assert [path for path in small_disk.rglob("*") if path.is_file() and path.name != ".lock"] == []
