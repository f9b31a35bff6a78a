"""recipes/common/slurm.sbatch says how it is used, without arguments and outside SLURM."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = str(ROOT / "recipes" / "common" / "slurm.sbatch")


def test_without_arguments_it_says_how_it_is_used() -> None:
    process = subprocess.run(["bash", FILE], capture_output=True, encoding="utf-8", check=False)
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith("usage: sbatch ")


def test_outside_slurm_it_names_run_sh() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    words = ["bash", FILE, "wmt14"]
    process = subprocess.run(words, capture_output=True, encoding="utf-8", check=False, env=environment)
    assert process.returncode == 2
    assert "recipes/wmt14/run.sh" in process.stderr
