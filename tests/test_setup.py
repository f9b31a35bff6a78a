"""What a newcomer meets first: installing, setting up, and the command that names the plug-in's directory.

The scripts run in small copies of the repository, without a package index, so that nothing is downloaded; a
whole installation is the slow test at the end (and what `bash scripts/test.sh` itself does in a fresh clone).
"""

from __future__ import annotations

import ast
import fcntl
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from tests.toy import binarize, make_corpus

ROOT = Path(__file__).resolve().parents[1]
STAMP, MARKER = ".fairseq_posenc-stamp", ".fairseq_posenc-unready"
#: the part of the package that only works with an extra
EXTRA_FOLDER = "fairseq_posenc/export"
#: by these a user chooses a Python
CHOICES = ("PYTHON", "VIRTUAL_ENV", "PYTHONPATH")
#: what scripts/env.sh may count on, on any Linux
TOOLS = [
    "bash",
    "cat",
    "cut",
    "df",
    "dirname",
    "find",
    "flock",
    "grep",
    "head",
    "ls",
    "mkdir",
    "mv",
    "rm",
    "sed",
    "sha256sum",
    "tail",
    "tee",
    "uname",
]


def run(command: list[str | Path], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in `cwd` in the environment `clean() | environment`."""
    return subprocess.run(
        command, cwd=cwd, env=clean() | environment, text=True, capture_output=True, check=False, timeout=300
    )


def clean() -> dict[str, str]:
    """This process's environment, but with no Python chosen and no package index to be had."""
    kept = {name: value for name, value in os.environ.items() if name not in CHOICES}
    return kept | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of what scripts/env.sh needs, at a path with a space, where there is no .venv."""
    path = tmp_path / "a clone"
    (path / "scripts").mkdir(parents=True)
    for name in ("setup.py", "pyproject.toml", "constraints.txt", "scripts/env.sh", "scripts/test.sh"):
        shutil.copy(ROOT / name, path / name)
    return path


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory for PATH with the tools that every Linux has, and no Python."""
    path = tmp_path / "bin"
    path.mkdir()
    for name in TOOLS:
        program = shutil.which(name)
        assert program, f"{name} is not on this machine"
        (path / name).symlink_to(program)
    return path


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def answering(path: Path, version: str) -> Path:
    """A stand-in for a Python of another version: it answers the one question that scripts/env.sh asks."""
    return program(path, f"printf '{version}\\n/usr\\n/usr\\n{path}\\n'")


def refusal(result: subprocess.CompletedProcess[str]) -> str:
    """The only line that a refused set-up may print."""
    assert result.returncode == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("env: ")
    return line


# python -m fairseq_posenc


def test_prints_only_the_directory_from_anywhere(tmp_path: Path) -> None:
    result = run([sys.executable, "-m", "fairseq_posenc"], tmp_path, PYTHONPATH=str(ROOT))
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{ROOT / 'fairseq_posenc'}\n"


def test_takes_no_arguments(tmp_path: Path) -> None:
    # As a file, which spares the import of fairseq.
    result = run([sys.executable, ROOT / "fairseq_posenc" / "__main__.py", "--arch"], tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "takes no arguments (got '--arch')" in result.stderr


# what is installed


def pins() -> dict[NormalizedName, Version]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pair) == 2 for pair in pairs)
    found = {canonicalize_name(name): Version(version) for name, version in pairs}
    assert len(found) == len(pairs), "a package is named twice"
    return found


def declared() -> dict[str, list[Requirement]]:
    """The requirements in setup.py, those of the package itself under the name ''."""
    (call,) = (
        node
        for node in ast.walk(ast.parse((ROOT / "setup.py").read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setup"
    )
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    groups = {"": ast.literal_eval(given["install_requires"]), **ast.literal_eval(given["extras_require"])}
    return {name: [Requirement(text) for text in texts] for name, texts in groups.items()}


def test_every_declared_range_admits_the_pinned_version() -> None:
    pinned = pins()
    for requirement in (each for group in declared().values() for each in group):
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement


def test_all_that_gets_installed_is_pinned() -> None:
    """Follows the requirements of the installed packages, torch's CUDA packages too where it has CUDA."""
    pinned = pins()
    waiting = [(requirement, "") for group in declared().values() for requirement in group]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if not applies or (name, extra) in seen:
            continue
        seen.add((name, extra))
        assert name in pinned, f"{requirement} is not in constraints.txt"
        try:
            texts = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # an environment that is not made by scripts/env.sh
            continue
        waiting += [(Requirement(text), one) for text in texts for one in {"", *requirement.extras}]
    assert {name for name, _ in seen} > {"torch", "ve-fairseq", "numpy", "antlr4-python3-runtime"}


def imports(path: Path) -> Iterator[str]:
    """The top-level names of all absolute imports in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


@pytest.mark.parametrize(
    ("folder", "groups"),
    [
        ("fairseq_posenc", [""]),
        (EXTRA_FOLDER, ["", "export"]),
        ("recipes", ["", "recipes"]),
        ("scripts", [""]),
        ("tests", ["", "recipes", "export", "dev"]),
    ],
)
def test_every_import_is_declared(folder: str, groups: list[str]) -> None:
    offered = {canonicalize_name(requirement.name) for group in groups for requirement in declared()[group]}
    own = {"fairseq_posenc", "recipes", "scripts", "tests", *sys.stdlib_module_names}
    distributions = importlib.metadata.packages_distributions()
    files = sorted((ROOT / folder).rglob("*.py"))
    if folder != EXTRA_FOLDER:
        files = [path for path in files if ROOT / EXTRA_FOLDER not in path.parents]
    assert files
    for path in files:
        # A file beside this one may be imported by its own name.
        beside = {each.stem for each in path.parent.iterdir()}
        for name in set(imports(path)) - own - beside:
            providers = {canonicalize_name(each) for each in distributions.get(name, [name])}
            assert providers & offered, f"{path} imports {name}, which setup.py does not ask for"


# scripts/env.sh: refusals


@pytest.mark.parametrize("version", ["3.10.13", "3.13.0", "2.7.18"])
def test_refuses_another_python(clone: Path, tmp_path: Path, version: str) -> None:
    python = answering(tmp_path / "python", version)
    line = refusal(run(["bash", "scripts/env.sh"], clone, PYTHON=str(python)))
    assert f"PYTHON={python} is Python {version}, but Python 3.11 or 3.12 is needed" in line
    assert not (clone / ".venv").exists()


def test_refuses_a_python_that_is_not_there_or_does_not_run(clone: Path, tmp_path: Path) -> None:
    line = refusal(run(["bash", "scripts/env.sh"], clone, PYTHON=str(tmp_path / "nowhere")))
    assert "is no program that can be run" in line
    shim = program(tmp_path / "shim", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    assert "does not run" in refusal(run(["bash", "scripts/env.sh"], clone, PYTHON=str(shim)))


def test_says_which_pythons_it_found_where_none_fits(clone: Path, tools: Path) -> None:
    line = refusal(run(["bash", "scripts/env.sh"], clone, PATH=str(tools)))
    assert "Python 3.11 or 3.12 is needed, and none is on PATH (no Python found)" in line
    answering(tools / "python3", "3.13.0")
    program(tools / "python3.12", "exit 127")  # as pyenv's shim where 3.12 is not active
    line = refusal(run(["bash", "scripts/env.sh"], clone, PATH=str(tools)))
    assert "none is on PATH (python3 is 3.13.0)" in line


def test_says_how_to_get_a_missing_venv_module(clone: Path, tools: Path) -> None:
    # Debian's python3 without python3-venv: it runs, and cannot import ensurepip.
    python = answering(tools / "python3", "3.11.2")
    program(python, f'case "$*" in *ensurepip*) exit 1 ;; esac\n{python.read_text()}')
    line = refusal(run(["bash", "scripts/env.sh"], clone, PATH=str(tools)))
    assert "has no venv module" in line
    assert "apt install python3.11-venv" in line


def test_refuses_an_active_environment_that_is_gone(clone: Path, tmp_path: Path) -> None:
    line = refusal(run(["bash", "scripts/env.sh"], clone, VIRTUAL_ENV=str(tmp_path / "gone")))
    assert "has no Python that runs: deactivate it" in line


def test_refuses_a_full_disk_before_it_starts(clone: Path, tools: Path) -> None:
    (tools / "df").unlink()
    program(tools / "df", "echo header; echo /dev/disk 1000000 900000 102400 90% /")
    line = refusal(run(["bash", "scripts/env.sh"], clone, PATH=f"{tools}:{os.environ['PATH']}"))
    assert "Only 100 MB are free on the disk of" in line
    assert not (clone / ".venv").exists()


def test_leaves_alone_a_venv_directory_that_is_something_else(clone: Path) -> None:
    (clone / ".venv").mkdir()
    (clone / ".venv" / "thesis.txt").write_text("precious")
    assert "is in the way: it is no virtual environment" in refusal(run(["bash", "scripts/env.sh"], clone))
    assert (clone / ".venv" / "thesis.txt").read_text() == "precious"


def test_leaves_alone_the_venv_of_another_clone(clone: Path, tmp_path: Path) -> None:
    """A shell that sourced the other clone's scripts/env.sh still exports its PYTHON."""
    theirs = tmp_path / "another clone" / ".venv"
    assert run([sys.executable, "-m", "venv", "--without-pip", theirs], tmp_path).returncode == 0
    (theirs / STAMP).write_text(f"python 3.11.7\nbase /usr\nrepository {theirs.parent}\n")
    before = sorted(theirs.rglob("*"))
    (clone / ".venv").mkdir()
    (clone / ".venv" / "occupied").touch()  # so that it ends early
    result = run(["bash", "scripts/env.sh"], clone, PYTHON=str(theirs / "bin" / "python"))
    first, last = result.stderr.splitlines()
    assert "belongs to another copy of this repository" in first
    assert f"{clone}/.venv is in the way" in last
    assert sorted(theirs.rglob("*")) == before


def test_a_failure_does_not_reach_the_shell_that_sources_it(clone: Path, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    script = 'before="$-"; source scripts/env.sh; echo "$? $PYTHON"; [[ "$-" == "$before" ]] && echo same'
    assert run(["bash", "-c", script], clone, PYTHON=nowhere).stdout == f"1 {nowhere}\nsame\n"
    # A script that stops at errors stops.
    result = run(["bash", "-c", "set -e; source scripts/env.sh; echo goes on"], clone, PYTHON=nowhere)
    assert (result.returncode, result.stdout) == (1, "")


# scripts/env.sh: what it does


def test_mends_a_set_up_that_was_cut_short_when_no_other_is_running(clone: Path, tools: Path) -> None:
    """With the Python that fits, behind others that do not; then pip finds no package index. Modules in the current
    directory that bear the names of Python's own are not run."""
    answering(tools / "python3", "3.13.0")
    program(tools / "python3.12", "exit 127")
    (tools / "python3.11").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    venv = clone / ".venv"
    half = venv / "lib" / "half a package"
    half.parent.mkdir(parents=True)
    half.touch()
    (venv / MARKER).touch()
    here = clone.parent / "here"
    here.mkdir()
    for name in ("venv", "ensurepip", "pip", "json", "runpy"):
        (here / f"{name}.py").write_text(f"open({str(here / 'RAN')!r}, 'w')\nraise SystemExit\n")
    with open(clone / ".venv.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            ["bash", clone / "scripts/env.sh"],
            cwd=here,
            env=clean() | {"PATH": str(tools), "PYTHONPATH": ":"},  # an empty entry means the current directory
            text=True,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        assert "another run is setting up" in process.stderr.readline()
        time.sleep(0.2)
        assert half.exists(), "it did not wait"
    lines = process.communicate(timeout=300)[1].splitlines()
    assert process.returncode == 1
    assert lines[0] == "env: an earlier set-up of .venv was cut short: making it anew"
    assert lines[1].startswith(f"env: making {venv} with Python {sys.version.split()[0]} (")
    assert not half.exists()
    (failure,) = (line for line in lines if "Failed" in line)
    assert "Failed in installing the packages: pip's package index does not offer setuptools==" in failure
    assert f"{venv}/setup.log" in failure
    assert not (venv / STAMP).exists()
    assert (venv / MARKER).exists(), "the next run must know that this .venv is unfinished"
    assert not (here / "RAN").exists()


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        ("[Errno 28] No space left on device", "the disk is full"),
        ("after connection broken by 'NewConnectionError(", "pip could not reach its package index"),
        ("ERROR: ResolutionImpossible: for help", "offers no set of packages that fits constraints.txt"),
        ("[Errno 13] Permission denied: 'x'", "a directory cannot be written to"),
        ("something new", "mend what the log says"),
    ],
)
def test_a_failing_pip_is_explained(clone: Path, tmp_path: Path, log: str, sentence: str) -> None:
    """An environment of the user's whose pip fails in this way."""
    environment = tmp_path / "theirs"
    assert run([sys.executable, "-m", "venv", "--without-pip", environment], tmp_path).returncode == 0
    (packages,) = environment.glob("lib/*/site-packages")
    (packages / "pip.py").write_text(f"import sys\nprint({log!r})\nsys.exit('--version' not in sys.argv)\n")
    result = run(["bash", "scripts/env.sh"], clone, VIRTUAL_ENV=str(environment))
    assert result.returncode == 1
    (failure,) = (line for line in result.stderr.splitlines() if "Failed" in line)
    assert sentence in failure
    assert result.stderr.splitlines()[-1] == f"env:   | {log}"
    assert not (clone / ".venv").exists()


def test_is_quick_when_all_is_set_up() -> None:
    stamp = Path(sys.prefix) / STAMP
    inputs = [ROOT / name for name in ("constraints.txt", "setup.py", "pyproject.toml")]
    if not stamp.exists() or stamp.stat().st_mtime < max(path.stat().st_mtime for path in inputs):
        pytest.skip(f"{sys.prefix} was not set up by scripts/env.sh for these files: run scripts/test.sh")
    started = time.monotonic()
    result = run(["bash", "scripts/env.sh"], ROOT, PYTHON=sys.executable)
    assert time.monotonic() - started < 2, "it should take a tenth of a second, and surely call no pip"
    assert result.stdout == f"{sys.prefix}/bin/python\n"
    assert result.stderr == ""


# scripts/test.sh


def test_every_check_runs_even_after_one_failed(clone: Path) -> None:
    (clone / "scripts" / "env.sh").write_text(f"export PYTHON={sys.executable}\n")
    (clone / "fairseq_posenc").mkdir()
    (clone / "fairseq_posenc" / "wrong.py").write_text("import os\n")
    (clone / "tests").mkdir()
    (clone / "tests" / "test_one.py").write_text("def test_one() -> None:\n    assert True\n")
    result = run(["bash", "scripts/test.sh", "-q"], clone, NO_COLOR="1")
    outcomes = re.findall(r"^(\w+) +(passed|FAILED) in \d+ s$", result.stdout, re.MULTILINE)
    assert [name for name, _ in outcomes] == ["ruff", "shellcheck", "mypy", "pytest"]
    assert dict(outcomes)["ruff"] == "FAILED"
    assert dict(outcomes)["pytest"] == "passed"
    assert "1 passed" in result.stdout
    assert result.returncode == 1


def test_shell_scripts_stop_at_the_first_error() -> None:
    scripts = [ROOT / ".ci/run", *ROOT.glob("scripts/*.sh"), *ROOT.glob("recipes/*/*.sh")]
    assert len(scripts) >= 3
    for path in scripts:
        assert "set -euo pipefail" in path.read_text(), path


@pytest.mark.slow
def test_pip_install_alone_makes_it_usable_from_anywhere(tmp_path: Path) -> None:
    """Needs a package index (or pip's cache), and some GB of disk."""
    copy = tmp_path / "source"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "output*", "data", "*.egg-info", "build"))
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    # Constrained, so that it takes the PyTorch that scripts/env.sh took, from pip's cache.
    install = [python, "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), "."]
    subprocess.run(install, cwd=copy, check=True)
    environment = {name: value for name, value in os.environ.items() if name not in CHOICES}
    printed = subprocess.check_output([python, "-m", "fairseq_posenc"], cwd="/", env=environment, text=True)
    path = Path(printed.rstrip("\n"))
    assert path.parent.name == "site-packages"
    assert not {"recipes", "scripts", "tests"} & {each.name for each in path.parent.iterdir()}
    data = binarize(make_corpus(tmp_path / "text"), tmp_path / "data-bin")
    size = [
        "--encoder-embed-dim",
        "16",
        "--decoder-embed-dim",
        "16",
        "--max-tokens",
        "200",
        "--max-update",
        "2",
    ]
    arch = ["--arch", "transformer_shaw_tiny", "--clipping-distance", "4", *size]
    trained = subprocess.run(
        [
            Path(python).parent / "fairseq-train",
            data,
            "--user-dir",
            path,
            *arch,
            "--cpu",
            "--optimizer",
            "adam",
        ],
        cwd=tmp_path,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
    )
    assert trained.returncode == 0, trained.stderr
    assert (tmp_path / "checkpoints" / "checkpoint_last.pt").exists()
