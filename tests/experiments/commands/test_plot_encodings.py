"""The pictures of encodings."""

import pytest

from fairseq_posenc.encodings import ENCODINGS
from posenc_experiments.commands.plot_encodings import build, lines


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_has_something_to_see(name: str) -> None:
    assert all(len(panels.names) == len(panels.matrices) > 0 for panels in lines(build(name)[0]))
