"""scripts/test.sh, and what holds for every shell script."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_check_runs_even_after_one_failed(tmp_path: Path) -> None:
    clone = tmp_path / "a clone"
    for folder in ("scripts", "fairseq_posenc", "tests"):
        (clone / folder).mkdir(parents=True)
    for name in ("setup.py", "pyproject.toml", "scripts/test.sh"):
        shutil.copy(ROOT / name, clone / name)
    (clone / "scripts" / "env.sh").write_text(f"export PYTHON={sys.executable}\n")
    (clone / "fairseq_posenc" / "wrong.py").write_text("import os\n")
    (clone / "tests" / "test_one.py").write_text("def test_one() -> None:\n    assert True\n")
    environment = os.environ | {"NO_COLOR": "1"}
    words = ["bash", "scripts/test.sh", "-q"]
    result = subprocess.run(words, cwd=clone, env=environment, text=True, capture_output=True, check=False, timeout=300)
    outcomes = dict(re.findall(r"^(\w+) +(passed|FAILED) in \d+ s$", result.stdout, re.MULTILINE))
    assert [*outcomes] == ["ruff", "format", "imports", "shellcheck", "mypy", "pytest"]
    assert (outcomes["ruff"], outcomes["pytest"]) == ("FAILED", "passed")
    assert "1 passed" in result.stdout
    assert result.returncode == 1


def test_help_runs_no_check(tmp_path: Path) -> None:
    words = ["bash", str(ROOT / "scripts" / "test.sh"), "--help"]
    result = subprocess.run(words, cwd=tmp_path, text=True, capture_output=True, check=True)
    assert "bash scripts/test.sh --quick " in result.stdout
    assert "== ruff" not in result.stdout
    assert "#" not in result.stdout


def test_shell_scripts_stop_at_the_first_error() -> None:
    scripts = [ROOT / ".ci/run", *ROOT.glob("scripts/*.sh"), *ROOT.glob("recipes/*/*.sh")]
    assert len(scripts) >= 3
    for path in scripts:
        assert "set -euo pipefail" in path.read_text(), path
