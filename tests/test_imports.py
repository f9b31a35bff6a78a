"""What importing the plugin changes in a program: modules of fairseq, and nothing else."""

import subprocess
import sys
from pathlib import Path

import fairseq
import pytest

from fairseq_posenc import patches

#: prints each name that `import fairseq_posenc` rebinds, in modules that were imported before
PROGRAM = """
import logging, os, sys, tarfile, warnings
import fairseq.checkpoint_utils, fairseq.trainer, fairseq_cli.train, fairseq.models.transformer, torch, tarfile
from fairseq.checkpoint_utils import load_checkpoint_to_cpu, load_model_ensemble_and_task
from fairseq.utils import eval_str_list
os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"

def state():
    found = {(module, name): value for module in list(sys.modules) for name, value in
             list(vars(sys.modules[module]).items()) if module in BEFORE}
    found["environment"] = dict(os.environ)
    found["hook"] = sys.excepthook
    found["filter"] = tarfile.TarFile.extraction_filter
    found["types"] = torch.serialization.get_safe_globals()
    found["warnings"] = list(warnings.filters)
    found["logging"] = (logging.root.level, list(logging.root.handlers))
    return found

BEFORE = set(sys.modules)
before = state()
import fairseq_posenc
after = state()
for key, value in before.items():
    same = after[key] is value or (isinstance(key, str) and after[key] == value)
    if not same and key != ("__main__", "before"):
        print(key if isinstance(key, str) else ":".join(key))
"""


def rebound(**environment: str) -> set[str]:
    import os

    process = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return set(process.stdout.split())


def test_only_functions_of_fairseq_are_replaced() -> None:
    names = rebound()
    outside = {name for name in names if name.split(":")[0].split(".")[0] not in ("fairseq", "fairseq_cli")}
    assert outside == set()
    assert {
        "fairseq.checkpoint_utils:load_checkpoint_to_cpu",
        "fairseq_cli.train:convert_namespace_to_omegaconf",
    } <= names
    patched = {patch.name for patch in patches.patches() if not isinstance(patch.owner, type)}
    assert {name.split(":")[1] for name in names} == patched


def test_the_switch_leaves_all_patches_out() -> None:
    assert rebound(FAIRSEQ_POSENC_PATCHES="0") == set()


def test_every_patch_names_its_fault() -> None:
    for patch in patches.patches():
        assert patch.fault.endswith(".")
        assert getattr(patch.owner, patch.name).patched


@pytest.mark.parametrize("command", ["-m fairseq_cli.train", "FILE", "SCRIPT"])
def test_commands_of_fairseq_print_one_sentence(command: str, tmp_path: Path) -> None:
    """Run as a module, as a file and by pip's script; fairseq's own functions are imported into `__main__` by name."""
    file = Path(fairseq.__file__).parents[1] / "fairseq_cli" / "train.py"
    words = {"FILE": [str(file)], "SCRIPT": [str(Path(sys.executable).with_name("fairseq-train"))]}
    plugin = Path(patches.__file__).parent
    process = subprocess.run(
        [sys.executable, *words.get(command, command.split()), str(tmp_path), "--user-dir", str(plugin)]
        + ["--arch", "transformer_shaw_tiny", "--clipping-distance", "-1", "--cpu"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode != 0
    assert "Traceback" not in process.stderr
    assert "--clipping-distance" in process.stderr
