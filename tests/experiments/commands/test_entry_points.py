"""Installed packages add encodings by entry points: their architectures and flags exist in every command."""

import json
import os
import subprocess
import sys
from pathlib import Path

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


# Runs several calls of fairseq-posenc in one process, to save its start; prints the status and the output of each.
CALLS = """
import json, sys

from click.testing import CliRunner

from posenc_experiments.cli import group

results = [CliRunner().invoke(group, words) for words in json.loads(sys.argv[1])]
print(json.dumps([(result.exit_code, result.output) for result in results]))
"""


def test_commands_know_the_encoding_of_an_installed_package(tmp_path: Path) -> None:
    (tmp_path / "near.py").write_text(MODULE)
    information = tmp_path / "near-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: near\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[fairseq_posenc.encodings]\nnear = near\n")
    calls = [["describe", "transformer_near_tiny", "--", "--near-slope", slope] for slope in ("2", "0")]
    recipe = ["quickstart", "--stages", "train", "--gpus", "0", "--dry-run"]
    calls.append(["run", *recipe, "--experiments", "near --near-slope 1,2", "--output-dir", str(tmp_path)])
    process = subprocess.run(
        [sys.executable, "-c", CALLS, json.dumps(calls)],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        cwd=tmp_path,
        check=True,
    )
    described, refused, run = json.loads(process.stdout)
    assert described[0] == run[0] == 0
    assert "transformer_near_tiny" in described[1]
    assert refused[0] == 1
    assert "--near-slope '0': must be more than 0 and finite, not 0" in refused[1]
    assert run[1].count("--arch transformer_near_tiny") == 2
