"""The tables of a recipe: what is wrong in one is refused by file, line and fix."""

from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.data.sources import read_archives, read_sources, wanted_archives
from tests.experiments.tiny import make_recipe, make_run

SOURCES = "split\tpairs\tlanguage\tarchive\tmember\tlines"
ARCHIVES = "archive\turl\tbytes\tchecksum"


@pytest.mark.parametrize(
    ("read", "header", "row", "message"),
    [
        (read_sources, SOURCES, "train\t*\ten\tone\t-\tmany", "'many' in column lines is not a number or - (unknown)."),
        (read_archives, ARCHIVES, "one\thttp://a/one.gz\t1\tsha1:0", "'sha1:0' is not sha256: or md5: followed by"),
        (read_sources, SOURCES, "train *\ten", "it has 2 columns instead of 6"),
    ],
)
def test_a_wrong_row_is_refused(tmp_path: Path, read, header: str, row: str, message: str) -> None:
    path = tmp_path / "table.tsv"
    path.write_text(f"{header}\n{row}\n")
    with pytest.raises(RecipeError) as refused:
        read(path)
    assert str(refused.value).startswith(f"{path}, line 2: {message}")


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            "train\t*\ten\ttrain.en\t-\t-",
            "sources.tsv: split 'train' has 2 files in en and 1 in de for en-de; add or remove rows",
        ),
        (
            "train\t*\ten\tmore.en\t-\t-\ntrain\t*\tde\tmore.de\t-\t-",
            "archives.tsv has no archive 'more.en', which {recipe}/sources.tsv names: add a row.",
        ),
    ],
)
def test_tables_that_do_not_fit_together_are_refused(tmp_path: Path, extra: str, message: str) -> None:
    conf, _ = make_recipe(tmp_path)
    with (conf.parent / "sources.tsv").open("a") as table:
        table.write(extra + "\n")
    with pytest.raises(RecipeError) as refused:
        wanted_archives(make_run(tmp_path, conf, None))
    assert f"{conf.parent}/{message.format(recipe=conf.parent)}" in str(refused.value)
