"""Encodings in a model of one's own need PyTorch, but neither fairseq nor what it brings."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(("fairseq", "hydra", "omegaconf")))  # None: an import fails
{}
print(tuple(output.shape), tuple(weights.shape))
"""


@pytest.fixture(scope="module")
def example():
    section = README.read_text(encoding="utf-8").partition("## In a model of your own")[2]
    return section.partition("```python\n")[2].partition("```")[0]


def test_the_example_of_the_readme_runs_without_fairseq(example):
    done = subprocess.run([sys.executable, "-c", WITHOUT.format(example)], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("(2, 8, 10, 64) (2, 8, 10, 10)\n", "")


def test_it_runs_beside_a_fairseq_that_this_python_cannot_import(example, tmp_path):
    """As fairseq 0.12.2 and its hydra 1.0.7 on Python 3.11. All packages that pip must uninstall first are named."""
    for module in ("fairseq", "hydra"):
        (tmp_path / f"{module}.py").write_text("raise ValueError('mutable default')")
    for package in ("fairseq", "ve_fairseq"):
        (tmp_path / f"{package}-0.12.2.dist-info").mkdir()
        (tmp_path / f"{package}-0.12.2.dist-info/METADATA").write_text(f"Name: {package}\nVersion: 0.12.2\n")
        (tmp_path / f"{package}-0.12.2.dist-info/top_level.txt").write_text("fairseq\n")
    program = example + "\nprint(tuple(output.shape))"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{README.parent}"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=environment)
    assert done.stdout == "(2, 8, 10, 64)\n", done.stderr
    [warning] = done.stderr.splitlines()
    assert re.search("ValueError: mutable default.* first pip uninstall fairseq .*, then pip install", warning)
