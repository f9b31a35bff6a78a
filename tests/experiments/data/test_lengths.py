"""Lengths of prepared sentences, against fairseq's own reading of the same files."""

from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.run import Run
from posenc_experiments.data import prepared as lengths
from tests.experiments.tiny import make_recipe, make_run, prepare_data


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("lengths")
    return prepare_data(make_run(root, *make_recipe(root, lines=300)))


def test_lengths_are_those_of_the_text_with_end_of_sentence(prepared: Run) -> None:
    for split in ("train", "valid", "test"):
        words = [
            [len(line.split()) + 1 for line in (prepared.source_dir / f"{split}.{side}").read_text().splitlines()]  # type: ignore[operator]
            for side in ("en", "de")
        ]
        assert lengths.longest(prepared, split) == (max(words[0]), max(words[1]))


@pytest.mark.parametrize("cut", [0, 25, 100])
def test_a_damaged_file_is_one_sentence(prepared: Run, tmp_path: Path, cut: int) -> None:
    path = tmp_path / "train.idx"
    path.write_bytes((lengths.binarized_dir(prepared) / "train.en-de.en.idx").read_bytes()[:cut])
    with pytest.raises(RecipeError, match=r"train\.idx is damaged: delete it, and run the stage prepare again\.$"):
        lengths.read_sizes(path)
