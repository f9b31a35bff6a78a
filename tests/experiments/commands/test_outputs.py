"""What commands write to: a file, a directory or a new name, never a device or a pipe."""

import os
from pathlib import Path

import pytest

from tests.experiments.tiny import run_here

ROOT = Path(__file__).resolve().parents[3]
RECIPE = ["quickstart", "--gpus", "0", "--dry-run"]
#: command lines, to which a test adds the path of a file
FILES = [
    ["average", f"{ROOT}/README.md", "--output"],
    ["compare", f"{ROOT}/results/quickstart", "--plot"],
    ["analyse", f"{ROOT}/results/quickstart", "--output"],
    ["score-targets", f"{ROOT}/results/quickstart", f"{ROOT}/README.md", "--output"],
    ["benchmark", "time", "shaw", "--json"],
]
#: and to which it adds that of a directory
DIRECTORIES = [
    ["plot-encodings", "shaw", "--output"],
    ["keep-results", f"{ROOT}/results"],
    ["export", "--force", f"{ROOT}/README.md"],
    ["run", *RECIPE, "--output-dir"],
    ["run", *RECIPE, "--data-dir"],
]


@pytest.mark.parametrize("words", [*FILES, *DIRECTORIES], ids=" ".join)
def test_a_device_a_pipe_and_a_missing_folder_are_refused_and_kept(words: list[str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "broken").symlink_to("nothing")
    (tmp_path / "file").touch()
    bad_files = [str(tmp_path), str(tmp_path / "none" / "x.png"), "/dev/x"]
    bad_directories = [str(tmp_path / "file"), "/dev/null/x"]
    others = bad_files if words in FILES else bad_directories
    for path in ("/dev/full", "/dev/stdout", str(tmp_path / "pipe"), str(tmp_path / "broken"), *others):
        result = run_here(*words, path)
        assert result.exit_code == 1
        assert path in result.stderr
        reasons = ("is not a directory", "is a directory, a device, a pipe or a broken link", "exists already")
        assert any(reason in result.stderr for reason in reasons)
        assert len(result.stderr.splitlines()) == 1
    assert Path("/dev/full").is_char_device()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "file", "pipe"]
