"""Every command runs the code of its own clone, not that of the current directory or of another clone."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from posenc_experiments.experiment.command_lines import train_command, train_environment
from posenc_experiments.experiment.experiment import Experiment
from tests.experiments.tiny import make_recipe, make_run

ROOT = Path(__file__).resolve().parents[1]
#: modules that a start of ours imports, and those that Python itself takes for `python -m`
OWN = ["recipes", "fairseq_posenc", "posenc_experiments"]
NAMES = [*OWN, "click", "json", "rich", "torch", "fairseq", "fairseq_cli", "sacrebleu", "runpy"]
RAN = "RAN"


def make_trap(directory: Path, *names: str) -> None:
    """Modules that leave a file behind when they are imported."""
    for name in names:
        (directory / name).mkdir(parents=True)
        mark = directory / f"{RAN}-{name}"
        (directory / name / "__init__.py").write_text(f"open({str(mark)!r}, 'w')\nraise SystemExit('a trap')\n")


def marks(directory: Path) -> list[Path]:
    return list(directory.rglob(f"{RAN}-*"))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """This repository's code in a directory full of traps, with an environment that is ready."""
    make_trap(tmp_path, *NAMES)
    for name in OWN:
        shutil.copytree(ROOT / name, tmp_path / "clone" / name)
    (tmp_path / "clone" / "scripts").mkdir()
    (tmp_path / "clone" / "scripts" / "env.sh").write_text(f"export PYTHON={sys.executable}\n")
    return tmp_path / "clone"


def run(
    words: list[str], cwd: Path, environment: Mapping[str, str] | None = None, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Runs a command that must end with this exit status."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    process = subprocess.run(
        words, cwd=cwd, env={**kept, **(environment or {})}, capture_output=True, text=True, timeout=300
    )
    assert process.returncode == status, process.stderr
    return process


@pytest.mark.parametrize(
    ("script", "flags", "printed"),
    [
        ("run.sh", ["--dry-run", "--gpus", "0", "--experiments", "shaw-k2"], "--user-dir {clone}/fairseq_posenc "),
        ("table.sh", ["--help"], ""),
    ],
)
def test_a_recipe_runs_its_own_code(clone: Path, script: str, flags: list[str], printed: str) -> None:
    folder = clone.parent
    make_trap(folder / "other", *OWN)
    (folder / "elsewhere" / clone.name / "recipes" / "quickstart").mkdir(parents=True)
    (folder / "elsewhere" / clone.name / "recipes" / "common").mkdir()
    # An empty entry means the current directory.
    paths = {"PYTHONPATH": f":.:{folder / 'other'}", "CDPATH": str(folder / "elsewhere")}
    process = run(["bash", f"{clone.name}/recipes/quickstart/{script}", *flags], folder, paths)
    assert marks(folder) == []
    assert printed.format(clone=clone) in process.stdout


def test_what_a_recipe_starts_runs_its_own_code(tmp_path: Path) -> None:
    conf, _ = make_recipe(tmp_path)
    make_trap(tmp_path / "here", *NAMES)
    run_ = make_run(tmp_path, conf, None, cpu_processes=2)
    training = train_command(Experiment(run_, "sinusoidal", 1))
    torchrun = training[: training.index("fairseq_cli.train")]
    # The processes that torchrun starts run a module of Python's own here, because it imports faster.
    process = run([*torchrun, "json.tool", "--help"], tmp_path / "here", train_environment(run_))
    assert "usage: " in process.stdout
    assert marks(tmp_path) == []


def test_a_batch_file_runs_its_own_clone(tmp_path: Path) -> None:
    """With stand-ins for SLURM's programs: sbatch runs a copy of the file, in the directory that it is called in."""
    for name in ("one", "two"):
        recipe = tmp_path / name / "recipes" / "small"
        recipe.mkdir(parents=True)
        (recipe / "run.sh").write_text(f'echo "{name}: $*"\n')
    copy = shutil.copy(ROOT / "recipes" / "common" / "slurm.sbatch", tmp_path / "slurm_script")
    submitted = tmp_path / "one" / "recipes" / "common" / "slurm.sbatch"
    programs = {
        "scontrol": f'if [[ $2 == job ]]; then echo "   Command={submitted} small --gpus 1"; else echo host0; fi',
        "srun": 'shift; exec "$@"',
    }
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(tmp_path / "two"), "SLURM_JOB_NODELIST": "host0"}
    slurm |= {"SLURM_NNODES": "1", "SLURM_NODEID": "0", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    process = run(["bash", str(copy), "small", "--gpus", "1"], tmp_path / "two", slurm)
    assert "\none: --nodes 1 --node-rank 0 --rendezvous host0:20007 --gpus 1\n" in process.stdout


def test_the_plugin_and_average_need_no_package_of_the_recipes() -> None:
    """fairseq itself imports sacrebleu, and that tabulate."""
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"{name} is not installed")
sys.meta_path.insert(0, Missing())
"""
    missing = ["rich", "matplotlib", "submitit", "sacremoses", "sentencepiece"]
    plugin = f"{code}import fairseq_posenc"
    run([sys.executable, "-c", plugin, *missing, "click", "posenc_experiments"], ROOT)
    average = f"{code}from posenc_experiments.cli import main\nmain(['average', '-o', 'no.pt', '/nonexistent.pt'])"
    process = run([sys.executable, "-c", average, *missing], ROOT, status=1)
    assert "/nonexistent.pt" in process.stderr
    assert "not installed" not in process.stderr


def test_the_command_is_installed_and_answers_without_torch() -> None:
    command = Path(sys.executable).with_name("fairseq-posenc")
    printed = run([str(command), "--help"], ROOT).stdout
    for name in ("run", "table", "compare", "average", "describe", "benchmark", "export"):
        assert f"\n  {name} " in printed
    code = "from posenc_experiments.cli import group\n"
    code += "for name in ('run', 'table', 'compare'): group([name, '--help'], standalone_mode=False)"
    process = run([sys.executable, "-X", "importtime", "-c", code], ROOT)
    assert process.stdout.count("Usage: ") == 3
    for slow in ("torch", "sacremoses", "pandas"):
        assert f" {slow}\n" not in process.stderr
