"""Fixtures for the tests of the experiments."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.experiments.tiny import CONF, make_recipe


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may make a small disk here")
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """The tiny recipe, with an experiment that fails when its training starts: the flag needs JSON."""
    return make_recipe(tmp_path, CONF + "  bad: shaw --eval-bleu --eval-bleu-args none\n")[0].parent
