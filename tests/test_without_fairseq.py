"""Encodings in a model of one's own need PyTorch, but neither fairseq nor what it brings."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(("fairseq", "hydra", "omegaconf")))  # None: an import fails
{}
print(tuple(output.shape), tuple(weights.shape))
"""


def test_the_example_of_the_readme_runs_without_fairseq():
    section = README.read_text(encoding="utf-8").partition("## In a model of your own")[2]
    example = re.search(r"```python\n(.*?)```", section, flags=re.DOTALL)[1]
    done = subprocess.run([sys.executable, "-c", WITHOUT.format(example)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "(2, 8, 10, 64) (2, 8, 10, 10)\n", done.stderr
