"""The check of a machine with a GPU, which goes through all of its parts on a CPU, too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]


def run(*arguments):
    return subprocess.run(
        ["bash", ROOT / "scripts" / "check_gpu.sh", *map(str, arguments)],
        env={**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_every_part_passes_on_a_cpu(tmp_path):
    process = run(tmp_path / "out", "--device", "cpu", "--minutes", 10)
    output = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert process.returncode == 0, (process.stderr, output)
    parts = ["machine", "tests", "benchmark length-32", "benchmark generation", "quickstart"]
    summary = output["log.txt"].splitlines()[-len(parts) :]
    assert [line.split("  ")[0] for line in summary] == parts
    assert all(" passed after " in line for line in summary)
    assert json.loads(output["machine.json"])["gpus"] == []
    [stock, shaw] = json.loads(output["gpu-length-32.json"])["results"]
    assert (stock["encoding"], shaw["encoding"], len(shaw["own"])) == ("stock", "shaw", 1)
    assert "All rows: --max-update 20" in output["quickstart.txt"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_machine_without_a_gpu_is_refused(tmp_path):
    process = run(tmp_path / "out")
    assert process.returncode == 1
    assert "finds no GPU: give --device cpu" in process.stderr


def test_wrong_arguments_are_refused():
    for arguments in ([], ["out", "--minutes", "soon"], ["out", "--device", "tpu"], ["out", "more"], ["--minutes"]):
        process = run(*arguments)
        assert process.returncode == 2, arguments
        assert "bash scripts/check_gpu.sh OUT" in process.stderr
