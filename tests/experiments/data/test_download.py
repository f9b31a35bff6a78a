"""Stage download: from disk and from a real local server; files are complete or missing."""

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.run import Run
from posenc_experiments.data import download, prepared, text
from posenc_experiments.data.prepared import download_dir
from posenc_experiments.data.sources import read_archives, read_sources, wanted_archives
from tests.experiments.data.server import serve
from tests.experiments.tiny import CONF, SPLITS, make_recipe, make_run, write_sources

ROOT = Path(__file__).resolve().parents[3]
NAMES = [f"{split}.{language}" for split in SPLITS for language in ("en", "de")]
FILES = sorted([*NAMES, "done.json"])
Asked = list[tuple[str, str | None]]  # the path and the range of each request


def part(run: Run, name: str) -> Path:
    """The path of an archive's unfinished download."""
    return download.part_path(download_dir(run) / wanted_archives(run)[name][0].path)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def test_from_disk(tmp_path: Path) -> None:
    conf, corpus = make_recipe(tmp_path)
    run = make_run(tmp_path, conf, corpus)
    download.download(run)
    for name in NAMES:
        assert (download_dir(run) / name).read_bytes() == (corpus / name).read_bytes()
    # Done, so the source is not needed.
    download.download(make_run(tmp_path, conf, tmp_path / "gone"))


def test_from_disk_a_changed_byte_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    conf, corpus = make_recipe(tmp_path)
    data = (corpus / "train.en").read_bytes()
    (corpus / "train.en").write_bytes(b"X" + data[1:])
    run = make_run(tmp_path, conf, corpus)
    with pytest.raises(
        RecipeError, match=r"corpus/train\.en has SHA-256 .* instead of .*: it is damaged or another version"
    ):
        download.download(run)
    (corpus / "train.en").write_bytes(data + b"X")
    with pytest.raises(RecipeError, match=r"train\.en has [\d,]+ bytes instead of [\d,]+"):
        download.download(run)
    (corpus / "train.en").unlink()
    with pytest.raises(RecipeError, match=r"--source .*corpus: there is no file train\.en"):
        download.download(run)
    assert not list(download_dir(run).glob("*train.en*"))


@contextlib.contextmanager
def served(tmp_path: Path, **faults: Any) -> Iterator[tuple[Run, Path, Asked]]:
    """The tiny recipe, whose corpus a server has; what was asked of it."""
    conf, corpus = make_recipe(tmp_path)
    with serve(corpus, **faults) as (url, asked):
        write_sources(conf.parent, corpus, url)
        yield make_run(tmp_path, conf, None), corpus, asked


@pytest.mark.parametrize("ranges", [True, False])
def test_a_killed_download_is_resumed(tmp_path: Path, ranges: bool) -> None:
    with served(tmp_path, ranges=ranges) as (run, corpus, asked):
        download_dir(run).mkdir(parents=True)
        part(run, "train.en").write_bytes((corpus / "train.en").read_bytes()[:100])
        download.download(run)
    assert ("/train.en", "bytes=100-") in asked
    assert sorted(path.name for path in download_dir(run).iterdir()) == FILES
    assert (download_dir(run) / "train.en").read_bytes() == (corpus / "train.en").read_bytes()


def test_a_server_that_is_busy_at_first_and_breaks_connections(tmp_path: Path) -> None:
    with served(tmp_path, busy=2, cut=700) as (run, corpus, asked):
        download.download(run)
    assert asked[2:4] == [("/train.en", None), ("/train.en", "bytes=700-")]
    assert sorted(path.name for path in download_dir(run).iterdir()) == FILES
    assert (download_dir(run) / "train.en").read_bytes() == (corpus / "train.en").read_bytes()


def test_a_connection_that_always_breaks_leaves_only_a_part(tmp_path: Path) -> None:
    with served(tmp_path, cut=0) as (run, _, _):
        with pytest.raises(RecipeError, match=r"train\.en cannot be reached \(.*\): check the network and run again"):
            download.download(run)
        assert list(download_dir(run).iterdir()) == [part(run, "train.en")]


def test_a_wrong_file_from_a_server_is_thrown_away(tmp_path: Path) -> None:
    with served(tmp_path) as (run, corpus, _):
        data = (corpus / "train.en").read_bytes()
        (corpus / "train.en").write_bytes(b"X" + data[1:])
        with pytest.raises(RecipeError, match="has SHA-256"):
            download.download(run)
        assert not list(download_dir(run).iterdir())
        (corpus / "train.en").unlink()
        with pytest.raises(RecipeError, match=r"train\.en cannot be reached \(HTTP Error 404.* --source"):
            download.download(run)


def test_a_file_in_its_place_is_verified_and_replaced_if_it_is_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf, corpus = make_recipe(tmp_path)
    run = make_run(tmp_path, conf, corpus)
    for content in (b"mine", b"cut later"):  # without a record, and with one
        download_dir(run).mkdir(parents=True, exist_ok=True)
        (download_dir(run) / "train.en").write_bytes(content)
        download.download(run)
        assert (download_dir(run) / "train.en").read_bytes() == (corpus / "train.en").read_bytes()
        assert f"train.en has {len(content)} bytes instead of " in capsys.readouterr().out
    # One that is whole needs no --source.
    (download_dir(run) / "done.json").unlink()
    download.download(make_run(tmp_path, conf, None))


def test_the_multi30k_table_is_that_of_the_real_files(shared: Path) -> None:
    archives = read_archives(ROOT / "recipes/multi30k/archives.tsv")
    rows = read_sources(ROOT / "recipes/multi30k/sources.tsv")
    assert len(rows) == 22  # the sets of 2017 have no Czech
    for row in rows:
        (archive,) = archives[row.archive]
        path = shared / "data/multi30k" / archive.file
        assert not download.mismatch(path, archive)
        assert archive.path == Path(f"{row.split}.{row.language}.gz")
        assert sum(1 for _ in text.read_lines(path)) == row.lines


def test_a_generator_is_run_once_and_again_when_it_or_its_options_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # as start.sh does
    conf, _ = make_recipe(
        tmp_path, CONF.replace("sources: sources.tsv", "generator: make.py\n  generator-options: --n 3")
    )
    generator = conf.parent / "make.py"
    generator.write_text(
        "import pathlib, sys, beside\n"
        "for split in ('train', 'valid', 'test'):\n"
        "    for side in ('en', 'de'):\n"
        "        (pathlib.Path(sys.argv[3]) / f'{split}.{side}').write_text('a\\n' * int(sys.argv[2]))\n"
    )
    (conf.parent / "beside.py").touch()
    run = make_run(tmp_path, conf, None)
    download.download(run)
    made = download_dir(run) / "train.en"
    assert made.read_text() == "a\n" * 3
    first = made.stat().st_mtime_ns
    download.download(run)
    assert made.stat().st_mtime_ns == first
    conf.write_text(conf.read_text().replace("--n 3", "--n 4"))
    run = make_run(tmp_path, conf, None)
    download.download(run)
    assert (download_dir(run) / "train.en").read_text() == "a\n" * 4
    assert made.is_file()
    generator.write_text("raise SystemExit('Error: out of ideas')")
    prepared._generation.cache_clear()
    with pytest.raises(RecipeError, match=r"make\.py failed \(exit status 1\): out of ideas"):
        download.download(run)
    assert not download_dir(run).exists()


def with_urls(directory: Path, urls: list[str], size: str | None = None) -> Run:
    """The tiny recipe, with several URLs of train.en; its size may be unknown."""
    table = directory / "recipe" / "archives.tsv"
    made = []
    for row in table.read_text().split("\n"):
        if row.startswith("train.en\t"):
            name, _, length, checksum = row.split("\t")
            made += ["\t".join((name, f"{url}/train.en", size or length, checksum)) for url in urls]
        else:
            made.append(row.replace("http://localhost:1", urls[-1]))
    table.write_text("\n".join(made))
    return make_run(directory, directory / "recipe" / "tiny.yaml", None)


def test_the_next_url_is_tried_with_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, corpus = make_recipe(tmp_path)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "train.en").write_bytes(b"X" * (corpus / "train.en").stat().st_size)
    (tmp_path / "empty").mkdir()
    with serve(tmp_path / "empty") as (empty, _), serve(tmp_path / "bad") as (bad, _), serve(corpus) as (good, asked):
        run = with_urls(tmp_path, ["http://localhost:1", empty, bad, good])
        download.download(run)
    assert ("/train.en", None) in asked
    assert (download_dir(run) / "train.en").read_bytes() == (corpus / "train.en").read_bytes()
    said = capsys.readouterr().out
    assert "http://localhost:1/train.en cannot be reached (" in said
    assert f"{empty}/train.en cannot be reached (HTTP Error 404: Not Found)" in said
    assert f"{bad}/train.en has SHA-256 " in said
    assert sorted(path.name for path in download_dir(run).iterdir()) == FILES


def test_of_unknown_size_a_whole_part_is_not_asked_for_again(tmp_path: Path) -> None:
    """The run was killed before the complete file was renamed."""
    _, corpus = make_recipe(tmp_path)
    data = (corpus / "train.en").read_bytes()
    with serve(corpus) as (url, asked):
        run = with_urls(tmp_path, [url], size="-")
        download_dir(run).mkdir(parents=True)
        part(run, "train.en").write_bytes(data)
        download.download(run)
    assert asked[0] == ("/train.en", f"bytes={len(data)}-")
    assert (download_dir(run) / "train.en").read_bytes() == data


def test_a_disk_that_fills_up_leaves_a_part_to_resume(tmp_path: Path, small_disk: Path) -> None:
    _, corpus = make_recipe(tmp_path)
    (corpus / "train.en").write_bytes(b"x\n" * 200_000)
    with serve(corpus) as (url, _):
        write_sources(tmp_path / "recipe", corpus)
        run = with_urls(tmp_path, [url], size="-")
        full = dataclasses.replace(run, data_dir=small_disk)
        with pytest.raises(OSError, match="No space left"):  # the command line prints it as a sentence
            download.download(full)
        assert [path.name for path in download_dir(full).iterdir()] == [part(full, "train.en").name]
        # With enough space, the rest is downloaded.
        shutil.copytree(download_dir(full), download_dir(run))
        download.download(run)
    assert (download_dir(run) / "train.en").read_bytes() == (corpus / "train.en").read_bytes()


def test_an_error_page_does_not_replace_the_part(tmp_path: Path) -> None:
    with served(tmp_path, ranges=False) as (run, corpus, _):
        download_dir(run).mkdir(parents=True)
        part(run, "train.en").write_bytes((corpus / "train.en").read_bytes()[:100])
        (corpus / "train.en").write_bytes(b"<html>Please log in.</html>")
        with pytest.raises(RecipeError, match=r"the server has 27 bytes instead of [\d,]+: it is another file"):
            download.download(run)
        assert part(run, "train.en").stat().st_size == 100


def test_two_archives_with_one_file_name_do_not_collide(tmp_path: Path) -> None:
    conf, corpus = make_recipe(tmp_path)
    table = conf.parent / "archives.tsv"
    for name in ("valid.en", "test.en"):
        (tmp_path / "disk" / name).mkdir(parents=True)
        (tmp_path / "disk" / name / "same.txt").write_bytes((corpus / name).read_bytes())
        table.write_text(table.read_text().replace(f"{name}\thttp://localhost:1/{name}", f"{name}\thttp://x/same.txt"))
    for name in NAMES:
        if name not in ("valid.en", "test.en"):
            (tmp_path / "disk" / name).write_bytes((corpus / name).read_bytes())
    run = make_run(tmp_path, conf, tmp_path / "disk")
    download.download(run)
    for name in ("valid.en", "test.en"):
        assert download.archive_path(run, name).read_bytes() == (corpus / name).read_bytes()
