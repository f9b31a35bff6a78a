"""scripts/env.sh with the real uv and pip, on small packages that are made here: nothing is downloaded."""

import fcntl
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STAMP = ".fairseq_posenc-stamp"
#: what scripts/env.sh may count on, beside uv or Python
TOOLS = ("bash", "cat", "dirname", "find", "flock", "grep", "head", "ls", "mkdir", "sed", "sha256sum", "tail", "tr")


def wheel(folder: Path, name: str, version: str = "1", metadata: str = "", **files: str) -> Path:
    info = f"{name}-{version}.dist-info"
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    folder.mkdir(exist_ok=True, parents=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for file, text in files.items():
            entry = zipfile.ZipInfo(file)
            entry.external_attr = 0o100755 << 16  # a program stays one
            archive.writestr(entry, text)
    (folder / "index.html").write_text("".join(f'<a href="{file.name}">' for file in folder.glob("*.whl")))
    return Path(str(archive.filename))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository at a path with a space, whose few requirements are in the folder `wheels` beside it."""
    clone, wheels, tools = tmp_path / "a clone", tmp_path / "wheels", tmp_path / "bin"
    uv = ROOT / ".uv/bin/uv" if (ROOT / ".uv/bin/uv").exists() else shutil.which("uv")
    if not uv:
        pytest.skip("there is no uv here: scripts/test.sh would have installed it")
    (clone / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/env.sh", clone / "scripts")
    tools.mkdir()
    for name in TOOLS:
        (tools / name).symlink_to(str(shutil.which(name)))
    (tools / "uv").symlink_to(uv)
    (tools / "python3").symlink_to(Path(sys.base_prefix) / "bin/python3")
    for name in ("pip", "setuptools"):
        wheel(wheels, name)
    wheel(wheels, "fairseq", **{"fairseq.py": ""})
    wheel(wheels, "torch", **{"torch/__init__.py": "print('CUDA build')", "torch/_dynamo.py": ""})
    wheel(wheels, "uv", **{"uv-1.data/scripts/uv": f'#!/bin/sh\nexec "{uv}" "$@"\n'})
    needs = "".join(f"Provides-Extra: {extra}\n" for extra in ("recipes", "export", "dev"))
    built = wheel(tmp_path / "built", "own", metadata=f"{needs}Requires-Dist: torch\nRequires-Dist: fairseq\n")
    build = f"import shutil\ndef build_editable(*to):\n    return shutil.copy({str(built)!r}, to[0]) and {built.name!r}"
    (clone / "backend.py").write_text(build)
    backend = "requires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    (clone / "pyproject.toml").write_text(f"[build-system]\n{backend}")
    (clone / "setup.py").touch()
    (clone / "constraints.txt").write_text("torch==1\nfairseq==1\nuv==1\n")
    (tmp_path / "pip.conf").write_text(f"[install]\nno-index = yes\n[global]\nfind-links =\n  {wheels}\n")
    return clone


def start(clone: Path, *command: str, **more: str) -> subprocess.Popen[str]:
    there, chosen = clone.parent, ("PIP_", "PYTHON", "UV_", "VIRTUAL", "TORCH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(chosen)}
    kept |= {"PATH": f"{there}/bin", "PIP_CONFIG_FILE": f"{there}/pip.conf", "UV_CACHE_DIR": f"{there}/cache"}
    kept |= {"UV_PYTHON_PREFERENCE": "only-system", "UV_PYTHON_DOWNLOADS": "never"}
    words = ["bash", *(command or [f"{clone}/scripts/env.sh"])]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=there, env=kept | more, text=True, stdout=pipe, stderr=pipe)


def set_up(clone: Path, **more: str) -> str:
    """What a successful run says."""
    process = start(clone, **more)
    printed, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert printed == f"{more.get('VIRTUAL_ENV', clone / '.venv')}/bin/python\n"
    return said


def refusal(clone: Path, **more: str) -> str:
    """The sentence, after whatever uv said, in which a failing run says why."""
    process = start(clone, **more)
    printed, said = process.communicate(timeout=300)
    assert (process.returncode, printed) == (1, "")
    return said.splitlines()[-1].removeprefix("env: ")


def torch(venv: Path) -> str:
    return subprocess.check_output([venv / "bin/python", "-c", "import torch"], text=True).strip()


def test_sets_up_once_and_again_what_changed(clone: Path) -> None:
    """pip installs uv, which takes pip's settings from its file, then from variables."""
    there, mine = clone.parent, clone / ".venv/mine"
    (there / "bin/uv").unlink()
    assert "installing uv" in set_up(clone)
    started = time.monotonic()
    assert set_up(clone) == ""
    assert time.monotonic() - started < 2, "it should take a tenth of a second"
    assert torch(clone / ".venv") == "CUDA build"
    assert not (clone / ".venv/bin/pip").exists(), "this is not the pip made here"

    mine.touch()
    wheel(there / "cpu/torch", "torch", "2+cpu", **{"torch/__init__.py": "print('CPU build')", "torch/_dynamo.py": ""})
    wheel(there / "cpu/fairseq", "fairseq", "0")
    wheel(there / "index/torch", "torch", "2")
    wheel(there / "index/fairseq", "fairseq", "2", **{"fairseq.py": ""})
    (there / "empty").mkdir()
    (clone / "constraints.txt").write_text("torch==2\nfairseq==2\n")
    index = {"PIP_INDEX_URL": f"file://{there}/index", "TORCH_INDEX_URL": f"file://{there}/cpu"}
    both = f"{there}/empty  {there}/wheels"
    assert "installing uv" not in set_up(clone, PIP_CONFIG_FILE=os.devnull, PIP_FIND_LINKS=both, **index)
    assert torch(clone / ".venv") == "CPU build"
    assert mine.exists()

    (clone / "constraints.txt").write_text("torch==1\n")
    moved = clone.rename(there / "moved")
    assert "making it again" in set_up(moved)
    assert not (moved / ".venv/mine").exists()


def test_two_at_once_after_one_that_was_cut_short(clone: Path) -> None:
    """Modules that only the current directory and PYTHONPATH hold are not run."""
    half, here = clone / ".venv/half", clone.parent
    half.mkdir(parents=True)
    (clone / ".venv" / STAMP).write_text("unfinished\n")
    for name in ("venv", "ensurepip", "pip", "json", "runpy", "torch"):
        (here / f"{name}.py").write_text(f"open({str(here / 'RAN')!r}, 'w')\nraise SystemExit\n")
    with open(clone / ".venv.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        runs = [start(clone, PYTHONPATH=f":{here}") for _ in range(2)]
        assert all("waiting for it" in run.stderr.readline() for run in runs if run.stderr)
        time.sleep(0.3)
        assert half.exists(), "they did not wait"
    said = [run.communicate(timeout=300)[1] for run in runs]
    assert sorted("ready after" in text for text in said) == [False, True], said
    assert not half.exists()
    assert not (here / "RAN").exists()


def test_an_active_environment_is_installed_into_and_repaired(clone: Path) -> None:
    theirs = clone.parent / "theirs"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", theirs], check=True)
    configuration = (theirs / "pyvenv.cfg").read_text()
    set_up(clone, VIRTUAL_ENV=str(theirs))
    (module,) = theirs.glob("lib/*/site-packages/torch/_dynamo.py")
    module.unlink()
    (theirs / "mine").touch()
    (clone / "setup.py").write_text("changed")
    assert "Cannot import torch and fairseq" in refusal(clone, VIRTUAL_ENV=str(theirs))
    set_up(clone, VIRTUAL_ENV=str(theirs))
    assert module.exists()
    assert (theirs / "pyvenv.cfg").read_text() == configuration
    assert (theirs / "mine").exists()
    assert not (clone / ".venv").exists()


def test_leaves_alone_what_is_not_its_own(clone: Path) -> None:
    """The .venv of another clone, whose PYTHON a shell still exports, and a directory that only bears the name."""
    venv = clone.parent / "other/.venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (venv / STAMP).write_text(f"repository {venv.parent}\n")
    thesis = clone / ".venv/thesis.txt"
    thesis.parent.mkdir()
    thesis.touch()
    assert f"{clone}/.venv is in the way" in refusal(clone, PYTHON=f"{venv}/bin/python")
    assert thesis.exists()


def test_refuses_what_does_not_fit_or_is_missing(clone: Path) -> None:
    tools = clone.parent / "bin"
    for name, script in {"shim": "exit 127", "old": "printf '3.13.0\\n/usr\\n/usr\\nold\\n'"}.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    assert "PYTHON=bin/old is Python 3.13.0, but Python 3.11 or 3.12 is" in refusal(clone, PYTHON="bin/old")
    assert "PYTHON=bin/shim does not run" in refusal(clone, PYTHON="bin/shim")
    assert "VIRTUAL_ENV=gone does not run" in refusal(clone, VIRTUAL_ENV="gone")
    assert "Cannot install the packages" in refusal(clone, PIP_FIND_LINKS=str(tools))
    (tools / "python3").unlink()
    assert "name a Python 3.11 or 3.12 with PYTHON=/path/python, or connect" in refusal(clone)
    (tools / "uv").unlink()
    assert "put uv on PATH" in refusal(clone)


@pytest.mark.parametrize(("options", "printed"), [("-ce", ""), ("-c", "1 gone hBc\n")])
def test_a_failure_stops_the_script_that_sources_it_only_if_errors_do(clone: Path, options: str, printed: str) -> None:
    command = f"source '{clone}/scripts/env.sh'; echo $? $PYTHON $-"
    assert start(clone, options, command, PYTHON="gone").communicate(timeout=60)[0] == printed
