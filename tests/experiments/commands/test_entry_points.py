"""Installed packages add encodings by entry points: their architectures and flags exist in every command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODULE = """
from torch import Tensor

from fairseq_posenc.positions import Positions
from fairseq_posenc.encodings import PositionEncoding, register_encoding
from fairseq_posenc.encodings.contract.options import option, positive


@register_encoding("near")
class Near(PositionEncoding):
    near_slope: float = option(1.0, positive, "slope of the bias")

    def bias(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        return -self.near_slope * positions.distances.abs().to(q.dtype)
"""


@pytest.fixture
def run(tmp_path):
    """Runs fairseq-posenc where a package with such an encoding is installed."""
    (tmp_path / "near.py").write_text(MODULE)
    information = tmp_path / "near-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: near\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[fairseq_posenc.encodings]\nnear = near\n")

    def run(*words):
        command = [sys.executable, "-m", "posenc_experiments", *map(str, words)]
        environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
        return subprocess.run(
            command, capture_output=True, encoding="utf-8", env=environment, cwd=tmp_path, check=False
        )

    return run


def test_describe_knows_its_architecture_and_flags(run):
    result = run("describe", "transformer_near_tiny", "--", "--near-slope", "2")
    assert result.returncode == 0, result.stderr
    assert "transformer_near_tiny" in result.stdout
    result = run("describe", "transformer_near_tiny", "--", "--near-slope", "0")
    assert result.returncode == 1
    assert "--near-slope: must be more than 0 and finite, not 0" in result.stderr


def test_recipes_run_it(run, tmp_path):
    experiments = ["--experiments", "near --near-slope 1,2", "--stages", "train", "--gpus", "0"]
    result = run("run", "--recipe", ROOT / "recipes/quickstart", *experiments, "--dry-run", "--output-dir", tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("--arch transformer_near_tiny") == 2
