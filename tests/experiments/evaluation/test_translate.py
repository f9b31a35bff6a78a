"""The output of fairseq-generate becomes hypotheses in the order of the source."""

from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.evaluation import translate


def test_hypotheses_are_sorted_by_the_source(tmp_path: Path) -> None:
    path = tmp_path / "generate-test.txt"
    path.write_text(
        "S-1\tx\nH-1\t-0.5\tc d\nD-1\t-0.5\tnot this\nH-1\t-0.7\tsecond best\nS-0\ty\nH-0\t-0.1\t\nGenerate x\n"
    )
    assert translate.read_hypotheses(path, 2) == [[], ["c", "d"]]
    with pytest.raises(RecipeError, match=r"2 hypotheses for 3 source lines, none for lines \[3\]"):
        translate.read_hypotheses(path, 3)
    with pytest.raises(RecipeError, match=r"2 hypotheses for 1 source lines"):
        translate.read_hypotheses(path, 1)
