"""Records of finished steps, atomic writes and locks."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from posenc_experiments.base.done import forget, is_done, locked, set_done
from posenc_experiments.base.errors import RecipeError, sentence
from posenc_experiments.base.files import (
    atomic_directory,
    atomic_path,
    read_json,
    require_directory,
    require_output,
    require_writable,
    write_json,
)

ROOT = Path(__file__).resolve().parents[3]


def test_a_record_is_valid_only_for_its_inputs_and_complete_outputs(tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    output.write_text("whole")
    assert not is_done(tmp_path, "step", "inputs")
    set_done(tmp_path, "step", "inputs", [output])
    set_done(tmp_path, "other")
    assert is_done(tmp_path, "step", "inputs")
    assert not is_done(tmp_path, "step", "other inputs")
    output.write_text("who")
    assert not is_done(tmp_path, "step", "inputs")
    output.unlink()
    assert not is_done(tmp_path, "step", "inputs")
    output.write_text("whole")
    forget(tmp_path, "step")
    assert not is_done(tmp_path, "step", "inputs")
    assert is_done(tmp_path, "other")
    (tmp_path / "done.json").write_text("{")  # damaged
    assert not is_done(tmp_path, "other")


@pytest.mark.parametrize("make", [atomic_path, atomic_directory])
def test_a_full_disk_is_named_by_the_file_and_leaves_nothing(make: Any, small_disk: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(1 << 20))

    def copy() -> None:  # its error names the source
        with make(small_disk / "copy") as temporary:
            shutil.copyfile(source, temporary / "file" if temporary.is_dir() else temporary)

    with pytest.raises(OSError, match="No space left") as full:
        copy()
    assert str(sentence(full.value)).startswith(f"{small_disk / 'copy'}: No space left on device: ")
    assert list(small_disk.iterdir()) == []


def test_writers_of_one_file_keep_theirs(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic_path(path) as mine:
        mine.write_text("mine")
        with atomic_path(path) as other:
            other.write_text("the other's")
        assert path.read_text() == "the other's"
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_writer_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_json(path, "old")
    write = (
        "import os, pathlib, signal, sys; from posenc_experiments.base.files import atomic_path\n"
        "with atomic_path(pathlib.Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_text('ne'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", write, str(path)], cwd=ROOT, check=False)
    assert killed.returncode == -9
    assert read_json(path) == "old"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("directory", "is a directory, a device, a pipe or a broken link: name a file, such as scores.tsv"),
        ("broken", "is a directory, a device, a pipe or a broken link"),
        ("/dev/stdout", "is a directory, a device, a pipe or a broken link"),
        ("/missing/folder/x.png", ": /missing/folder is not a directory: make it first, or name another file"),
        ("/proc/scores.tsv", "cannot be written ("),  # a directory that root cannot write to either
    ],
)
def test_an_output_that_cannot_be_renamed_to_is_refused_early(path: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "broken").symlink_to("nothing")
    with pytest.raises(RecipeError, match=rf"^--output {re.escape(str(tmp_path / path))} ?{re.escape(message)}"):
        require_output(tmp_path / path, "scores.tsv")
    require_output(tmp_path / "scores.tsv", "scores.tsv")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["broken", "directory"]


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    for path in ("/proc", "/proc/new"):
        with pytest.raises(RecipeError, match=rf"^{path} cannot be written \(.*\): name another directory\.$"):
            require_writable(Path(path))
    require_writable(tmp_path / "new" / "one")
    assert list((tmp_path / "new" / "one").iterdir()) == []


def test_a_directory_is_one_or_can_become_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in ("/dev/null", "/dev/null/new", tmp_path / "file"):
        with pytest.raises(RecipeError, match=rf"^--output {path}: .* is not a directory: name another path\.$"):
            require_directory(Path(path), "--output")
    require_directory(tmp_path, "--output")
    require_directory(tmp_path / "new" / "newer", "--output")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_damaged_json_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(RecipeError, match=r"a\.json is not valid JSON"):
        read_json(tmp_path / "a.json")
    with pytest.raises(RecipeError, match=r"b\.json is missing"):
        read_json(tmp_path / "b.json")


def test_a_directory_replaces_all_of_an_earlier_one(tmp_path: Path) -> None:
    for name in ("old", "new"):
        with atomic_directory(tmp_path / "made") as temporary:
            (temporary / name).touch()
    assert [str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*")] == ["made", "made/new"]


def test_a_lock_excludes_others_and_is_inherited_by_a_child(tmp_path: Path) -> None:
    with locked(tmp_path) as descriptor:
        with pytest.raises(RecipeError, match="in use by another run"), locked(tmp_path):
            pass
        child = subprocess.Popen(["sleep", "60"], pass_fds=(descriptor,))
    try:
        with pytest.raises(RecipeError, match="in use by another run"), locked(tmp_path):
            pass
    finally:
        child.kill()
        child.wait()
    with locked(tmp_path) as descriptor:
        assert os.fstat(descriptor)
