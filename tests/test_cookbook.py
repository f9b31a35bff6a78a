"""Every line of docs/cookbook.md runs, one after the other, and does what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_posenc.checkpoints import load_checkpoint
from tests.toy import make_corpus

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cookbook.md"
LINES = 6


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all blocks of the page ran in one shell, with what they printed in `printed.txt`."""
    directory = tmp_path_factory.mktemp("cookbook")
    make_corpus(directory / "text", lines={"train": 60, "valid": LINES, "test": LINES})
    script = ""
    for language, block in re.findall(r"^```(bash|python)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        script += block if language == "bash" else f"python - <<'END'\n{block}END\n"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with open(directory / "printed.txt", "w+") as printed:
        command = ["bash", "-euo", "pipefail", "-c", script]
        environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
        process = subprocess.run(command, cwd=directory, env=environment, stdout=printed, stderr=printed, check=False)
        printed.seek(0)
        assert process.returncode == 0, printed.read()[-4000:]
    return directory


def test_an_encoding_is_in_one_stack_only(directory: Path) -> None:
    for stack in ("encoder", "decoder"):
        names = load_checkpoint(directory / f"in-{stack}" / "checkpoint_last.pt")["model"]
        assert {name.partition(".")[0] for name in names if "relative_keys" in name} == {stack}


def test_positions_are_between_source_and_target(directory: Path) -> None:
    model = load_checkpoint(directory / "in-cross" / "checkpoint_last.pt")["cfg"]["model"]
    assert model.cross_position_encoding == "sinusoidal_qk"


def test_the_resumed_training_is_averaged(directory: Path) -> None:
    files = {path.name for path in (directory / "in-encoder").iterdir()}
    assert files == {f"checkpoint{name}.pt" for name in ("1", "2", "3", "_best", "_last")}
    averaged = load_checkpoint(directory / "averaged.pt")["extra_state"]["averaged_from"]
    assert [Path(path).name for path in averaged] == ["checkpoint2.pt", "checkpoint3.pt"]


def test_everything_is_translated_and_scored(directory: Path) -> None:
    printed = (directory / "printed.txt").read_text()
    assert '"signature": "nrefs:1|case:mixed' in printed
    assert len((directory / "test.hyp").read_text().splitlines()) == LINES
    for name in ("generated.txt", "ensemble.txt"):
        assert len(re.findall(r"^D-\d+\t", (directory / name).read_text(), re.MULTILINE)) == LINES
    assert len(re.findall(r"^D-0\t", printed, re.MULTILINE)) == 1
    assert re.search(r"^\[(['\"]).*\1, (['\"]).*\2\]$", printed, re.MULTILINE)
    assert "▁" not in (directory / "test.hyp").read_text()
