"""The pictures of encodings."""

from pathlib import Path

import pytest

from fairseq_posenc.encodings import ENCODINGS
from posenc_experiments.commands.plot_encodings import build, panels_of
from tests.experiments.tiny import run_here


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_has_panels(name: str) -> None:
    assert all(len(panels.names) == len(panels.matrices) > 0 for panels in panels_of(build(name)[0]))


def test_a_full_disk_is_named_by_the_picture(small_disk: Path) -> None:
    (small_disk / "other").write_bytes(bytes(250_000))
    result = run_here("plot-encodings", "shaw", "--output", small_disk)
    assert result.exit_code == 1
    assert f"{small_disk / 'shaw.png'}: No space left on device" in result.stderr
    assert [path.name for path in small_disk.iterdir()] == ["other"]
