"""scripts/env.sh with the real uv and pip, on small packages that are made here: nothing is downloaded."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("bash", "cat", "dirname", "find", "flock", "grep", "head", "ls", "mkdir", "sed", "sha256sum", "tail")


def wheel(folder: Path, name: str, version: str = "1", metadata: str = "", **files: str) -> Path:
    info, path = f"{name}-{version}.dist-info", folder / f"{name}-{version}-py3-none-any.whl"
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    folder.mkdir(exist_ok=True, parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    (folder / "index.html").write_text(f'<a href="{path.name}">')
    return path


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository at a path with a space, whose few requirements are in the folder `wheels` beside it."""
    clone, wheels = tmp_path / "a clone", tmp_path / "wheels"
    uv = shutil.which("uv", path=f"{ROOT}/.uv/bin:{os.environ['PATH']}") or pytest.skip("there is no uv here")
    for folder in (clone / "scripts", clone / "fairseq_posenc", tmp_path / "bin"):
        folder.mkdir(parents=True)
    for program in (uv, f"{sys.base_prefix}/bin/python3", *(str(shutil.which(name)) for name in TOOLS)):
        (tmp_path / "bin" / Path(program).name).symlink_to(program)
    wheel(wheels, "pip")
    wheel(wheels, "setuptools")
    wheel(wheels, "fairseq", **{"fairseq.py": ""})
    wheel(wheels, "torch", **{"torch/__init__.py": "print('CUDA build')", "torch/_dynamo.py": ""})
    main = {"uv.py": f"import os, sys\ndef main():\n    os.execv({uv!r}, sys.argv)"}
    own_uv = wheel(wheels, "uv", **main, **{"uv-1.dist-info/entry_points.txt": "[console_scripts]\nuv = uv:main\n"})
    own = wheel(tmp_path / "own", "own", metadata="Requires-Dist: torch\nRequires-Dist: fairseq\n")
    build = f"import shutil\ndef build_editable(*to):\n    return shutil.copy({str(own)!r}, to[0]) and {own.name!r}"
    (clone / "backend.py").write_text(build)
    (clone / "pyproject.toml").write_text("build-system = {requires=[], build-backend='backend', backend-path=['.']}")
    (clone / "setup.py").touch()
    (clone / "constraints.txt").write_text("torch==1\n")
    digest = hashlib.sha256(own_uv.read_bytes()).hexdigest()
    (clone / "hashes.txt").write_text(f"uv==1 \\\n    --hash=sha256:{digest}\n")
    shutil.copy(ROOT / "scripts/env.sh", clone / "scripts")
    (tmp_path / "pip.conf").write_text(f"[install]\nno-index = yes\n[global]\nfind-links =\n  {wheels}\n")
    (tmp_path / "torch.py").write_text("raise SystemExit('the module of the directory, or of PYTHONPATH, ran')")
    return clone


def start(clone: Path, *command: str, **more: str) -> subprocess.Popen[str]:
    there, words = clone.parent, command or (f"{clone}/scripts/env.sh",)
    kept = {"PATH": f"{there}/bin", "PIP_CONFIG_FILE": f"{there}/pip.conf", "UV_CACHE_DIR": f"{there}/cache"}
    kept |= {"UV_PYTHON_PREFERENCE": "only-system", "UV_PYTHON_DOWNLOADS": "never", "PYTHONPATH": f":{there}"}
    return subprocess.Popen(["bash", *words], cwd=there, env=kept | more, text=True, stdout=-1, stderr=-1)


def set_up(clone: Path, into: str | None = "a clone/.venv", **more: str) -> str:
    """What a run says that names the Python of this environment, or fails if it is None."""
    process = start(clone, **more)
    printed, said = process.communicate()
    expected = (0, f"{clone.parent / into}/bin/python\n") if into else (1, "")
    assert (process.returncode, printed) == expected, said
    return said


def test_sets_up_once_and_again_what_changed(clone: Path) -> None:
    there, mine = clone.parent, clone / ".venv/mine"
    mine.mkdir(parents=True)  # in a set-up that was cut short
    (clone / ".venv/.fairseq_posenc-stamp").write_text("unfinished\n")
    (there / "bin/uv").unlink()  # pip installs one
    said = [run.communicate()[1] for run in (start(clone), start(clone))]
    assert sorted("CUDA build" in text for text in said) == [False, True], said
    assert not mine.exists()
    assert set_up(clone, PYTHON=f"{clone}/.venv/bin/python") == ""

    mine.touch()
    wheel(there / "cpu/torch", "torch", "2+cpu", **{"torch/__init__.py": "print('CPU build')", "torch/_dynamo.py": ""})
    wheel(there / "cpu/fairseq", "fairseq", "0")
    wheel(there / "index/fairseq", "fairseq", "2", **{"fairseq.py": ""})
    (clone / "constraints.txt").write_text("torch==2\nfairseq==2\n")
    more = {"PIP_FIND_LINKS": f"{there}/own  {there}/wheels", "TORCH_INDEX_URL": f"file://{there}/cpu"}
    more |= {"PIP_INDEX_URL": f"file://{there}/index", "PIP_CONFIG_FILE": os.devnull}
    assert "CPU build" in set_up(clone, **more)
    assert mine.exists()
    set_up(clone.rename(there / "moved"), "moved/.venv", **more)
    assert not (there / "moved/.venv/mine").exists()


def test_a_chosen_environment_is_installed_into_and_repaired(clone: Path) -> None:
    theirs = clone.parent / "theirs"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", theirs], check=True)
    set_up(clone, "theirs", VIRTUAL_ENV=str(theirs))
    (module,) = theirs.glob("lib/*/site-packages/torch/_dynamo.py")
    module.unlink()
    (theirs / "mine").touch()
    (clone / "setup.py").write_text("changed")
    assert f"torch and fairseq from {theirs}" in set_up(clone, None, VIRTUAL_ENV=str(theirs))
    set_up(clone, "theirs", PYTHON=f"{theirs}/bin/python")
    assert module.exists()
    assert (theirs / "mine").exists()


def test_refuses_what_does_not_fit_or_is_missing(clone: Path) -> None:
    there, thesis = clone.parent, clone / ".venv/thesis.txt"
    (there / "bin/old").write_text("#!/bin/sh\nprintf '3.13.0\\n/usr\\n/usr\\nold\\n'\n")
    (there / "bin/old").chmod(0o755)
    assert "bin/old is Python 3.13.0" in set_up(clone, None, PYTHON="bin/old")
    assert "gone/bin/python does not run" in set_up(clone, None, VIRTUAL_ENV="gone")
    thesis.parent.mkdir()
    thesis.touch()
    (there / "other/fairseq_posenc").mkdir(parents=True)  # another copy, whose PYTHON a shell still exports
    assert f"{thesis.parent} is in the way" in set_up(clone, None, PYTHON=f"{there}/other/.venv/bin/python")
    thesis.rename(there / "thesis.txt")
    locked = (clone / "hashes.txt").read_text()
    (clone / "hashes.txt").write_text(f"{locked}pip==1 --hash=sha256:{64 * '0'}\n")  # as if an index had another file
    assert "Hash mismatch for `pip==1`" in set_up(clone, None)
    (clone / "hashes.txt").write_text(locked)
    assert "Cannot install the packages" in set_up(clone, None, PIP_FIND_LINKS="/proc/1")
    (there / "bin/python3").unlink()
    assert "a Python 3.11 or 3.12 with PYTHON=/path/python" in set_up(clone, None)
    (there / "bin/uv").unlink()
    assert "put uv on PATH" in set_up(clone, None)
    caller = f"source '{clone}/scripts/env.sh'; echo $? $PYTHON $-"
    assert start(clone, "-c", caller, PYTHON="gone").communicate()[0] == "1 gone hBc\n"
