"""scripts/ve-fairseq.patch makes the installed ve-fairseq of a checkout of fairseq's main."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import fairseq
import pytest

PATCH = Path(__file__).resolve().parents[1] / "scripts" / "ve-fairseq.patch"


NO_CHECKOUT = "FAIRSEQ_CHECKOUT names no checkout of facebookresearch/fairseq at 3d262bb2: the patch is not applied"


@pytest.mark.skipif("FAIRSEQ_CHECKOUT" not in os.environ, reason=NO_CHECKOUT)
def test_the_patch_gives_the_installed_files(tmp_path: Path) -> None:
    names = re.findall(r"^\+\+\+ b/(.*)$", PATCH.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(os.environ["FAIRSEQ_CHECKOUT"]) / name, tmp_path / name)
    subprocess.run(["git", "apply", PATCH], cwd=tmp_path, check=True)
    assert len(names) == 4
    for name in names:
        installed = Path(fairseq.__file__).parents[1] / name
        assert (tmp_path / name).read_bytes() == installed.read_bytes(), name
