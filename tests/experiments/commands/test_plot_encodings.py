"""The pictures of encodings."""

import pytest

from fairseq_posenc.encodings import ENCODINGS
from posenc_experiments.commands.plot_encodings import build, panels_of


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_has_panels(name: str) -> None:
    assert all(len(panels.names) == len(panels.matrices) > 0 for panels in panels_of(build(name)[0]))
