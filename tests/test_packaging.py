"""Requirements, their pins, installation with pip, and the command that prints the package's directory."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from tests.toy import binarize, make_corpus

ROOT = Path(__file__).resolve().parents[1]
#: the packages of the wheel
OWN = ("fairseq_posenc", "posenc_experiments")
#: folders of the package that need an extra, with the groups of requirements that they may import
EXTRA_FOLDERS = {"fairseq_posenc/export": ["export"]}
#: environment variables that select a Python
CHOICES = ("PYTHON", "VIRTUAL_ENV", "PYTHONPATH")


def run(command: list[str | Path], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command without this process's variables that select a Python."""
    variables = {name: value for name, value in os.environ.items() if name not in CHOICES} | environment
    return subprocess.run(command, cwd=cwd, env=variables, text=True, capture_output=True, check=False, timeout=300)


# python -m fairseq_posenc


def test_prints_only_the_directory_from_anywhere(tmp_path: Path) -> None:
    result = run([sys.executable, "-m", "fairseq_posenc"], tmp_path, PYTHONPATH=str(ROOT))
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{ROOT / 'fairseq_posenc'}\n"


def test_a_fairseq_that_is_too_old_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "fairseq/models").mkdir(parents=True)
    (tmp_path / "fairseq/__init__.py").touch()
    (tmp_path / "fairseq/models/__init__.py").touch()
    result = run([sys.executable, "-c", "import fairseq_posenc"], tmp_path, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert result.returncode == 1
    message = result.stderr.splitlines()[-1]
    assert message.startswith("ImportError: fairseq_posenc needs Python 3.10 or later, torch")
    assert message.endswith("brings one that fits.")


# requirements


def pins() -> dict[NormalizedName, Version]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    versions = {canonicalize_name(name): Version(version) for name, version in pairs}
    assert len(versions) == len(pairs), "a package is named twice"
    return versions


def test_all_but_pytorch_is_locked_by_hashes() -> None:
    """Otherwise: bash scripts/lock.sh."""
    locked = re.findall(r"^(\S+)==(\S+) \\\n    --hash=sha256:\w{64}", (ROOT / "hashes.txt").read_text(), re.MULTILINE)
    expected = {name: version for name, version in pins().items() if name not in {"torch", "torchaudio"}}
    assert {canonicalize_name(name): Version(version) for name, version in locked} == expected


def declared() -> dict[str, list[Requirement]]:
    """The requirements in pyproject.toml by extra, for this Python; those of the package itself have the name ''."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    return {name: [r for r in map(Requirement, texts) if applies(r)] for name, texts in groups.items()}


def applies(requirement: Requirement, extra: str = "") -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def test_all_that_gets_installed_is_pinned_within_the_declared_ranges() -> None:
    """Follows the requirements of installed packages, including torch's CUDA packages if it has CUDA."""
    pinned = pins()
    assert {"pip", "setuptools", "uv"} <= set(pinned)  # required by scripts/env.sh
    requirements = [each for group in declared().values() for each in group if each.name != "fairseq_posenc"]
    for requirement in requirements:
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement
    waiting = [(requirement, "") for requirement in requirements]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if not applies(requirement, extra) or (name, extra) in seen:
            continue
        seen.add((name, extra))
        assert name in pinned, f"{requirement} is not in constraints.txt"
        try:
            texts = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # the environment was not made by scripts/env.sh
            continue
        waiting += [(Requirement(text), chosen) for text in texts for chosen in {"", *requirement.extras}]
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
        ("fairseq_posenc", []),
        *EXTRA_FOLDERS.items(),
        ("posenc_experiments", ["recipes"]),
        ("recipes", ["recipes"]),
        ("scripts", ["recipes"]),
        ("tests", ["recipes", "export", "dev"]),
    ],
)
def test_every_import_is_declared(folder: str, groups: list[str]) -> None:
    requirements = declared()
    offered = {canonicalize_name(each.name) for group in ("", "fairseq", *groups) for each in requirements[group]}
    own = {"fairseq_posenc", "posenc_experiments", "recipes", "scripts", "tests", *sys.stdlib_module_names}
    own.update(path.stem for path in (ROOT / "tools").glob("*.py"))  # on pytest's path
    distributions = importlib.metadata.packages_distributions()
    separate = {ROOT / path for path in EXTRA_FOLDERS if path != folder}
    files = [path for path in (ROOT / folder).rglob("*.py") if separate.isdisjoint(path.parents)]
    assert files
    for path in files:
        # A file in the same folder may be imported by its own name.
        beside = {file.stem for file in path.parent.iterdir()}
        for module in set(imports(path)) - own - beside:
            providers = {canonicalize_name(name) for name in distributions.get(module, [module])}
            assert providers & offered, f"{path} imports {module}, which pyproject.toml does not ask for"


# the wheel


def copy_source(directory: Path) -> Path:
    """A copy of the repository without what it does not track."""
    top = shutil.ignore_patterns(".*", "output*", "data", "*.egg-info", "build")  # posenc_experiments has a data, too

    def ignored(folder: str, names: list[str]) -> set[str]:
        return {*(top(folder, names) if Path(folder) == ROOT else ()), *({"__pycache__"} & set(names))}

    return Path(shutil.copytree(ROOT, directory / "source", ignore=ignored))


def test_a_wheel_brings_the_recipes_and_runs_them_in_any_directory(tmp_path: Path) -> None:
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    build = ["pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), "."]
    subprocess.run([sys.executable, "-m", *build], cwd=copy_source(tmp_path), check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    assert sorted(path.name for path in site.iterdir() if path.suffix != ".dist-info") == sorted(OWN)
    recipes = site / "posenc_experiments" / "recipes"
    shipped = {str(path.relative_to(recipes)) for path in recipes.rglob("*") if path.is_file()}
    here = {path for path in (ROOT / "recipes").rglob("*") if path.is_file() and path.parent.name != "__pycache__"}
    assert shipped == {str(path.relative_to(ROOT / "recipes")) for path in here}
    text = make_corpus(tmp_path / "text", lines={"train": 9, "valid": 3, "test": 3})
    few, cpu = "corpus.generator-options=--seed 1 --train 20 --valid 2 --test 2", ["--gpus", "0"]
    calls: tuple[tuple[list[str | Path], str], ...] = (
        (["--help"], "  fairseq-posenc run quickstart"),
        (["run", "quickstart", "--stages", "download", "--set", few, *cpu], f"data: {empty / 'data/quickstart/xa-xb'}"),
        (["own", "--text", text, "--pair", "en-de", "--dry-run", *cpu], f"settings: {recipes / 'own/small.yaml'} "),
        (["table", "quickstart", "clipping", "--dry-run", *cpu], f"--user-dir {site / 'fairseq_posenc'} "),
    )
    for words, expected in calls:
        command: list[str | Path] = [sys.executable, "-m", "posenc_experiments", *words]
        called = run(command, empty, PYTHONPATH=str(site))
        assert called.returncode == 0, called.stdout + called.stderr
        assert expected in called.stdout
        assert "bash " not in called.stdout
    assert len(list(empty.rglob("train.xa"))) == 1
    assert sorted(path.name for path in empty.iterdir()) == ["data", "output"]


def install(extra: str, directory: Path) -> str:
    """Makes an environment with this package and an extra, and returns its Python.

    It needs a package index and some GB of disk space.
    """
    python = str(directory / "venv" / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", directory / "venv"], check=True)
    # With constraints, so that it installs the same PyTorch as scripts/env.sh.
    words = [python, "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), f".[{extra}]"]
    subprocess.run(words, cwd=copy_source(directory), check=True)
    return python


@pytest.mark.slow
def test_pip_install_alone_runs_a_recipe_and_own_text_from_anywhere(tmp_path: Path) -> None:
    command = Path(install("recipes", tmp_path)).parent / "fairseq-posenc"
    empty, text = tmp_path / "empty", make_corpus(tmp_path / "text", lines={"train": 60, "valid": 5, "test": 5})
    empty.mkdir()
    few = ["--set", "corpus.generator-options=--seed 1 --train 200 --valid 20 --test 20"]
    short = ["--gpus", "0", "--experiments", "shaw-k2", "--set", "train.max-update=4"]
    for words in (["run", "quickstart", *few], ["own", "--text", str(text), "--pair", "en-de"]):
        call: list[str | Path] = [command, *words, *short]
        called = run(call, empty)
        assert called.returncode == 0, called.stdout + called.stderr
        assert re.search(r"\nshaw-k2 +\d", called.stdout)
    made = {str(path.relative_to(empty).parent.parent.parent) for path in empty.rglob("averaged.pt")}
    assert made == {"output/quickstart/xa-xb", "output/text/en-de"}


@pytest.mark.slow
def test_pip_install_alone_makes_it_usable_from_anywhere(tmp_path: Path) -> None:
    python = install("fairseq", tmp_path)
    path = Path(run([python, "-m", "fairseq_posenc"], Path("/")).stdout.rstrip("\n"))
    assert path.parent.name == "site-packages"
    assert not {"recipes", "scripts", "tests"} & {installed.name for installed in path.parent.iterdir()}
    data = binarize(make_corpus(tmp_path / "text"), tmp_path / "data-bin")
    size = ["--encoder-embed-dim", "16", "--decoder-embed-dim", "16", "--max-tokens", "200", "--max-update", "2"]
    arch = ["--arch", "transformer_shaw_tiny", "--clipping-distance", "4", *size]
    train: list[str | Path] = [Path(python).parent / "fairseq-train", data, "--user-dir", path]
    trained = run([*train, *arch, "--cpu", "--optimizer", "adam"], tmp_path)
    assert trained.returncode == 0, trained.stderr
    average: list[str | Path] = [Path(python).parent / "fairseq-posenc", "average", "-o", "averaged.pt"]
    averaged = run([*average, "checkpoints/checkpoint_last.pt"], tmp_path)
    assert averaged.returncode == 0, averaged.stderr
    assert (tmp_path / "averaged.pt").exists()
