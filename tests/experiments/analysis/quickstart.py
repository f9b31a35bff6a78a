"""Real experiments: the quickstart's kept translations, with the test set that they were made from."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from posenc_experiments.evaluation.kept import unpacked

ROOT = Path(__file__).resolve().parents[3]
#: directories of settings, with how many seeds are taken
SETTINGS = {
    "transformer_sinusoidal_tiny": 2,
    "transformer_shaw_tiny-clipping-distance-0": 1,
    "transformer_shaw_tiny-clipping-distance-2": 1,
    "transformer_shaw_tiny-clipping-distance-16": 1,
}


@cache
def kept() -> Path:
    """The directory of the kept settings."""
    return unpacked(ROOT / "results" / "quickstart" / "xa-xb")


@cache
def _temporary() -> TemporaryDirectory[str]:
    """A directory that is removed when the tests end."""
    return TemporaryDirectory(prefix="grammar")


@cache
def corpus() -> Path:
    """The quickstart's test set, which does not depend on how much training text is made."""
    directory = Path(_temporary().name, "text")
    grammar = ROOT / "recipes" / "quickstart" / "grammar.py"
    options = ["--seed", "1", "--train", "2", "--valid", "2", "--test", "500", str(directory)]
    subprocess.run([sys.executable, str(grammar), *options], check=True, capture_output=True)
    return directory


def make_experiments(root: Path, settings: dict[str, int] = SETTINGS) -> Path:
    """Experiment directories as the pipeline leaves them, but for the models."""
    for setting, seeds in settings.items():
        for seed in range(1, seeds + 1):
            directory = root / "quickstart" / "xa-xb" / setting / f"seed{seed}"
            shutil.copytree(kept() / setting / f"seed{seed}", directory)
            shutil.copy(corpus() / "test.xa", directory / "test.src")
            shutil.copy(corpus() / "test.xb", directory / "test.ref")
    return root


def seed1(root: Path, name: str) -> Path:
    """The directory of the first seed of the setting with this in its name."""
    return next(root.rglob(f"*{name}*/seed1"))
