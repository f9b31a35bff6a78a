"""The user's own text: which files are found and refused, and a copy that does not depend on their form."""

import gzip
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.recipe import Prepare
from posenc_experiments.base.run import Run
from posenc_experiments.base.settings import read_recipe
from posenc_experiments.data import download, prepare, subwords
from posenc_experiments.data.checksums import checksums
from posenc_experiments.data.own_text import ORIGIN, count_pairs, find_splits
from tests.experiments.data.own_text import as_gzip, as_tsv, own_conf
from tests.experiments.tiny import make_run
from tests.toy import make_corpus


def own_run(directory: Path, text: Path, pair: str = "en-de", name: str = "mine", tests: str = "test") -> Run:
    values = {"name": name, "pairs": pair, "tests": tests, "text": text, "downloads": f"{name}/text/{pair}"}
    conf = directory / "full.yaml"
    corpus = "".join(f"  {key}: {value}\n" for key, value in values.items())
    conf.write_text(own_conf(directory).read_text().replace("\ncorpus:\n", f"\ncorpus:\n{corpus}"))
    return make_run(directory, conf, None, pair=pair)


def test_the_copy_does_not_depend_on_the_form_of_the_files(tmp_path: Path) -> None:
    text = make_corpus(tmp_path / "text", lines=30)
    found = []
    for stored in (text, as_gzip(text, tmp_path / "gz"), as_tsv(text, tmp_path / "tsv")):
        run = own_run(tmp_path, stored, name=stored.name)
        download.download(run)
        found.append((checksums(run), prepare.inputs(run)))
        for path in text.iterdir():
            assert (run.download_dir / path.name).read_bytes() == path.read_bytes()
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(("size", "learnt"), [(10, 26), (20, 20), (4000, 23)])
def test_the_number_of_subwords_fits_the_text(tmp_path: Path, size: int, learnt: int) -> None:
    """The text has 16 characters and 28 subwords at most."""
    text = make_corpus(tmp_path / "text", lines=30)
    files = [(side, text / f"train.{side}") for side in ("de", "en")]
    assert prepare.learn_from(tmp_path, files, 1, Prepare(vocabulary=size), resizes=True) == learnt
    assert subwords.SentencePiece(tmp_path, "en").model.get_piece_size() == learnt


def test_another_number_of_subwords_is_reported(tmp_path: Path) -> None:
    run = own_run(tmp_path, make_corpus(tmp_path / "text", lines=30))
    run = replace(run, recipe=replace(run.recipe, prepare=Prepare(vocabulary=10)))
    download.download(run)
    prepare.prepare(run)
    said = (run.prepared_dir / "prepare.txt").read_text().splitlines()
    assert said[1] == "26 subwords, because 10 do not fit this text"


def test_byte_order_marks_and_a_missing_last_newline_do_not_matter(tmp_path: Path) -> None:
    text = make_corpus(tmp_path / "text", lines=30)
    plain, marked = own_run(tmp_path, text), make_corpus(tmp_path / "marked", lines=30)
    download.download(plain)
    (marked / "test.en").write_bytes(b"\xef\xbb\xbf" + (marked / "test.en").read_bytes()[:-1])
    run = own_run(tmp_path, marked, name="marked")
    download.download(run)
    assert checksums(run) == checksums(plain)


def test_lines_end_at_newlines_only(tmp_path: Path) -> None:
    text = make_corpus(tmp_path / "text", lines=30)
    odd = "a\u2028b\x85c\rd\x0be\r\n".encode()
    for side in ("en", "de"):
        (text / f"test.{side}").write_bytes(odd)
    assert count_pairs(find_splits(text, "en-de"))["test"] == 1
    run = own_run(tmp_path, text)
    download.download(run)
    assert (run.download_dir / "test.en").read_bytes() == odd


def test_test_sets_are_all_files_named_so_unless_they_are_of_other_languages(tmp_path: Path) -> None:
    text = make_corpus(tmp_path / "text", lines=30)
    for name in ("test_2016.en", "test_2016.de", "test2.en", "test2.fr", "test.2017.tsv", "notes.en", "testing"):
        (text / name).write_text("a\tb\n")
    assert list(find_splits(text, "en-de")) == ["train", "valid", "test.2017", "test", "test_2016"]


def refused(text: Path, message: str, pair: str = "en-de") -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        count_pairs(find_splits(text, pair))
    assert str(text) in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"valid.en": None, "valid.de": None}, r"has no valid\.en, valid\.de for --pair en-de: add them"),
        ({"test.en": None, "test.de": None}, r"has no test\.en, test\.de for"),
        ({"test.de": None}, r"has no test\.de for"),
        ({"test_2016.en": b"a\n"}, r"has no test_2016\.de for"),
        ({"train.de": None}, r"has no train\.de for .*; it has test\.de, test\.en, train\.en, valid\.de"),
        ({"train.en.gz": gzip.compress(b"a\n")}, r"has train\.en and train\.en\.gz: remove one"),
        ({"train.tsv": b"a\tb\n"}, r"has train\.tsv and train\.en: remove one"),
        ({"train.tsv": b"a\tb\n", "train.tsv.gz": b""}, r"has train\.tsv and train\.tsv\.gz: remove one"),
        ({"test 2.en": b"a\n", "test 2.de": b"a\n"}, r"test 2\.en: rename it"),
        ({"train.en": b"a\nb\n"}, r"train\.en has 2 lines and .*train\.de has 30: .* line by line"),
        ({"valid.en": b"", "valid.de": b""}, r"valid\.en is empty"),
        ({"test.en": b"a\nb\0\n"}, r"test\.en, line 2: it has a NUL byte"),
        ({"test.en": "a\nb\n".encode("utf-16")}, r"test\.en, line 1: it has a NUL byte"),
        (
            {"train.en": None, "train.en.gz": gzip.compress(b"a\n" * 9999)[:-9]},
            r"train\.en\.gz is not a whole gzip file",
        ),
        ({"train.en": None, "train.en.gz": b"a\n"}, r"train\.en\.gz is not a whole gzip file"),
        ({"test2.tsv": b"a\tb\na\tb\tc\n"}, r"test2\.tsv, line 2: it has 3 columns; write source, one tab"),
        ({"test2.tsv": b"a\tb\n\n"}, r"test2\.tsv, line 2: it has 1 columns"),
    ],
)
def test_unusable_text_is_named(tmp_path: Path, files: dict[str, bytes | None], message: str) -> None:
    text = make_corpus(tmp_path / "text", lines=30)
    for name, content in files.items():
        (text / name).unlink() if content is None else (text / name).write_bytes(content)
    refused(text, message)


def test_a_path_that_is_not_a_readable_directory_is_named(tmp_path: Path) -> None:
    text = make_corpus(tmp_path / "text", lines=30)
    refused(text / "nothing", "there is no such directory")
    refused(text / "train.en", "this is a file")
    (text / "train.en").unlink()
    (text / "train.en").symlink_to("nothing")
    refused(text, r"train\.en is not a file, or is a link to nothing")
    (text / "train.en").unlink()
    (text / "train.en").mkdir()
    refused(text, r"train\.en is not a file")


def test_links_are_followed(tmp_path: Path) -> None:
    text, linked = make_corpus(tmp_path / "text", lines=30), tmp_path / "linked"
    linked.mkdir()
    for path in text.iterdir():
        (linked / path.name).symlink_to(path)
    (tmp_path / "link").symlink_to(linked)
    assert count_pairs(find_splits(tmp_path / "link", "en-de")) == {"train": 30, "valid": 20, "test": 20}


def test_a_change_is_noticed_by_content(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import os

    text = make_corpus(tmp_path / "text", lines=30)
    run = own_run(tmp_path, text)
    download.download(run)
    before = prepare.inputs(run)
    download.download(run)
    assert "has not changed" in capsys.readouterr().out
    path = text / "valid.de"
    status, content = path.stat(), path.read_text()
    path.write_text(content.replace("t1 ", "t2 ", 1))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    download.download(run)
    assert "the text changed since it was copied: valid.de" in capsys.readouterr().out
    assert prepare.inputs(run) != before
    assert (run.download_dir / "valid.de").read_bytes() == path.read_bytes()


def test_other_text_under_one_name_is_refused_and_moved_text_is_not(tmp_path: Path) -> None:
    text, other = make_corpus(tmp_path / "text", lines=30), make_corpus(tmp_path / "other", lines=31)
    run = own_run(tmp_path, text)
    download.download(run)
    with pytest.raises(RecipeError, match=f"--name mine: .* holds the text of {re.escape(str(text))}, and that of"):
        download.download(own_run(tmp_path, other))
    moved = text.rename(tmp_path / "moved")
    download.download(own_run(tmp_path, moved))
    (moved / "test.en").write_text("changed\n" * 20)
    download.download(own_run(tmp_path, moved))  # its new path is recorded


def test_data_of_another_recipe_is_not_replaced(tmp_path: Path) -> None:
    run = own_run(tmp_path, make_corpus(tmp_path / "text", lines=30))
    marker = run.pair_dir / "done" / "prepare.json"
    marker.parent.mkdir(parents=True)
    marker.write_text("{}")
    with pytest.raises(RecipeError, match=r"--name mine: .* holds the data of another recipe"):
        download.download(run)
    assert not run.download_dir.exists()


def test_a_directory_that_is_no_copy_is_not_replaced(tmp_path: Path) -> None:
    run = own_run(tmp_path, make_corpus(tmp_path / "text", lines=30))
    run.download_dir.mkdir(parents=True)
    (run.download_dir / "notes").touch()
    with pytest.raises(RecipeError, match="is not a copy of text"):
        download.download(run)
    assert (run.download_dir / "notes").is_file()


@pytest.mark.parametrize("lost", ["the copy", "the copy and its marker", "the record of its origin"])
def test_a_copy_that_a_killed_call_left_incomplete_is_made_again(tmp_path: Path, lost: str) -> None:
    text = make_corpus(tmp_path / "text", lines=30)
    run = own_run(tmp_path, text)
    download.download(run)
    prepared = run.pair_dir / "done" / "prepare.json"
    prepared.parent.mkdir(parents=True)
    prepared.write_text("{}")
    (text / "test.en").write_text("changed\n" * 20)
    if lost == "the copy":
        shutil.rmtree(run.download_dir)
    elif lost == "the copy and its marker":
        shutil.rmtree(run.download_dir.parent)
    else:
        (run.pair_dir / ORIGIN).unlink()
    download.download(run)
    assert (run.download_dir / "test.en").read_text() == "changed\n" * 20


def test_text_in_a_directory_of_the_run_is_refused_and_kept(tmp_path: Path) -> None:
    text = make_corpus(tmp_path / "data" / "mine" / "text" / "en-de", lines=30)
    with pytest.raises(RecipeError, match="this run writes there"):
        download.download(own_run(tmp_path, text))
    assert len(list(text.iterdir())) == 6
    text = text.rename(tmp_path / "data" / "mine" / "here")  # as for other directories in --data-dir
    download.download(own_run(tmp_path, text))
    assert len(list(text.iterdir())) == 6


def test_refused_text_leaves_the_earlier_copy(tmp_path: Path) -> None:
    text = make_corpus(tmp_path / "text", lines=30)
    run = own_run(tmp_path, text)
    download.download(run)
    kept = {path.name: path.read_bytes() for path in run.download_dir.iterdir()}
    (text / "test.en").write_text("one line\n")
    with pytest.raises(RecipeError, match="has 1 lines"):
        download.download(run)
    assert {path.name: path.read_bytes() for path in run.download_dir.iterdir()} == kept
    assert not list(run.download_dir.parent.glob("*.tmp"))


def test_a_tsv_has_its_columns_in_the_order_of_the_pair(tmp_path: Path) -> None:
    text = make_corpus(tmp_path / "text", lines=30)
    tsv, reverse = as_tsv(text, tmp_path / "tsv"), as_tsv(text, tmp_path / "reverse", ("de", "en"))
    download.download(own_run(tmp_path, tsv))
    with pytest.raises(RecipeError, match="the first column of the same text was en; swap the columns"):
        download.download(own_run(tmp_path, tsv, pair="de-en"))
    download.download(own_run(tmp_path, reverse, pair="de-en"))


def test_a_missing_test_set_is_named(tmp_path: Path) -> None:
    run = own_run(tmp_path, make_corpus(tmp_path / "text", lines=30), tests="test nope")
    with pytest.raises(RecipeError, match=r"\[corpus\] names 'nope', but .* has train, valid, test"):
        download.download(run)


def test_bad_utf8_in_a_test_names_the_users_own_file_and_line(tmp_path: Path) -> None:
    text = make_corpus(tmp_path / "text", lines=30)
    lines = (text / "test.de").read_bytes().split(b"\n")
    lines[4] = b"\xff"
    (text / "test.de").write_bytes(b"\n".join(lines))
    run = own_run(tmp_path, text)
    download.download(run)
    with pytest.raises(RecipeError, match=rf"^{re.escape(str(text / 'test.de'))}, line 5: this is not UTF-8"):
        prepare.prepare(run)


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    run = replace(own_run(tmp_path, make_corpus(tmp_path / "text", lines=30)), dry_run=True)
    download.download(run)
    assert not run.data_dir.exists()


def test_text_beside_a_table_is_refused(tmp_path: Path) -> None:
    conf = own_conf(tmp_path)
    with pytest.raises(RecipeError, match="give one of 'sources', 'generator' and 'text'"):
        read_recipe(conf, ["corpus.name=a", "corpus.pairs=en-de", "corpus.sources=a.tsv", "corpus.text=a"])


def test_a_full_disk_leaves_no_half_copy(tmp_path: Path, small_disk: Path) -> None:
    text = make_corpus(tmp_path / "text", lines=20_000)
    run = replace(own_run(tmp_path, text), data_dir=small_disk)
    with pytest.raises(OSError, match="No space left"):
        download.download(run)
    assert [path for path in small_disk.rglob("*") if path.is_file() and path.name != ".lock"] == []
