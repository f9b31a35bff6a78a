"""What importing the plugin changes in a program: modules of fairseq, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import fairseq
import pytest

from fairseq_posenc import patches

#: prints each name that `import fairseq_posenc` changes in modules, and classes of modules, that were imported before
PROGRAM = """
import logging, os, sys, tarfile, warnings
import fairseq.checkpoint_utils, fairseq.trainer, fairseq_cli.train, fairseq.models.transformer, torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu, load_model_ensemble_and_task
os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
before = None

def state(modules):
    found = {}
    for module in modules:
        for name, value in list(vars(sys.modules[module]).items()):
            if not name.startswith("__") and name != "before":
                found[module, name] = value
            if isinstance(value, type) and value.__module__ == module:
                found |= {(module, name, attribute): inner for attribute, inner in vars(value).items()}
    return found

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


def changed(**environment: str) -> set[str]:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return set(process.stdout.split())


def test_only_listed_functions_of_fairseq_are_replaced() -> None:
    names = changed()
    assert {
        name for name in names if name.partition(":")[0].partition(".")[0] not in ("fairseq", "fairseq_cli")
    } == set()
    assert {name.split(":")[-1] for name in names} == {name for _, name, _ in patches.PATCHES}
    assert "fairseq_cli.train:convert_namespace_to_omegaconf" in names  # imported there by name


def test_the_switch_leaves_all_patches_out() -> None:
    assert changed(FAIRSEQ_POSENC_PATCHES="0") == set()


@pytest.mark.parametrize("how", ["file", "script"])
def test_commands_of_fairseq_print_one_sentence(how: str, tmp_path: Path) -> None:
    """Run as a file, and by pip's script; other tests run them as modules."""
    file = Path(fairseq.__file__).parents[1] / "fairseq_cli" / "train.py"
    flags = (
        "--user-dir",
        Path(patches.__file__).parent,
        "--arch",
        "transformer_shaw_tiny",
        "--clipping-distance",
        "-1",
    )
    process = subprocess.run(
        [sys.executable, file if how == "file" else Path(sys.executable).with_name("fairseq-train"), tmp_path, *flags],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode != 0
    assert "Traceback" not in process.stderr
    assert "--clipping-distance" in process.stderr
