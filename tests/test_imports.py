"""What importing the plugin changes in a program: modules of fairseq, and nothing else."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairseq_posenc import patches
from tests import forked

#: prints each name that `import fairseq_posenc` changes in modules, and classes of modules, that were imported before
PROGRAM = """
import logging, os, sys, tarfile, warnings
import fairseq.checkpoint_utils, fairseq.trainer, fairseq_cli.train, fairseq.models.transformer, torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu, load_model_ensemble_and_task
os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
before = None

def state(modules):
    values = {}
    for module in modules:
        for name, value in list(vars(sys.modules[module]).items()):
            if not name.startswith("__") and name != "before":
                values[module, name] = value
            if isinstance(value, type) and value.__module__ == module:
                values |= {(module, name, attribute): inner for attribute, inner in vars(value).items()}
    return values

def contents():
    return {
        "environment": dict(os.environ),
        "types": torch.serialization.get_safe_globals(),
        "warnings": list(warnings.filters),
        "logging": (logging.root.level, list(logging.root.handlers)),
    }

modules = list(sys.modules)
before, held = state(modules), contents()
import fairseq_posenc
after = state(modules)
print(*(":".join(key) for key, value in before.items() if after.get(key) is not value))
print(*(name for name, value in contents().items() if value != held[name]))
"""


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[str]]:
    """Runs the program with these variables in its environment."""
    (tmp_path / "changed.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)

    def run(**environment: str) -> set[str]:
        process = forked.run("changed", [], None, {**os.environ, **environment})
        assert process.returncode == 0, process.stderr
        return set(process.stdout.split())

    return run


def test_only_listed_functions_of_fairseq_are_replaced(changed: Callable[..., set[str]]) -> None:
    names = changed()
    assert {name.replace(":", ".").partition(".")[0] for name in names} == {"fairseq", "fairseq_cli"}
    assert {name.split(":")[-1] for name in names} == {name for _, name, _ in patches.PATCHES}
    assert "fairseq_cli.train:convert_namespace_to_omegaconf" in names  # imported there by name


def test_the_switch_leaves_all_patches_out(changed: Callable[..., set[str]]) -> None:
    assert changed(FAIRSEQ_POSENC_PATCHES="0") == set()


def test_a_script_of_fairseq_prints_one_sentence(tmp_path: Path) -> None:
    """Run by pip's script; other tests run the commands as modules."""
    flags = ("--arch", "transformer_shaw_tiny", "--clipping-distance", "-1")
    script, plugin = Path(sys.executable).with_name("fairseq-train"), Path(patches.__file__).parent
    words = [script, tmp_path, "--user-dir", plugin, *flags]
    process = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert process.returncode != 0
    assert "Traceback" not in process.stderr
    assert "--clipping-distance" in process.stderr
