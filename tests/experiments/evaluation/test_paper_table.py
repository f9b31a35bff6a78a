"""A paper's table is read from its file, and refused in one sentence with file and line."""

from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.commands.table import make_rows
from posenc_experiments.evaluation.paper_table import read_table
from posenc_experiments.workflow.plan import make_plan
from tests.experiments.tables import HEADER, ROW, call, plan, write_table

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = sorted(path for path in (ROOT / "recipes").glob("*/tables/*.tsv"))


def test_comments_title_and_figures(recipe: Path) -> None:
    write_table(recipe, "# A title", "", HEADER, "# more", ROW, ROW.replace("K = 2", "other").replace("25.8", "-"))
    table = read_table(recipe, "paper")
    assert (table.name, table.title) == ("paper", "A title")
    assert [(row.label, row.paper) for row in table.rows] == [("K = 2", 25.8), ("other", None)]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], ["first row", "row, pair, conf"]),
        ([HEADER], ["has no rows"]),
        ([HEADER, ROW, ROW.replace("\ttest", "")], ["line 3", "6 columns instead of 7"]),
        ([HEADER, ROW.replace("shaw-k2", " ")], ["line 2", "'experiment' is empty"]),
        ([HEADER, ROW.replace("sacrebleu", "bleu")], ["line 2", "'bleu'"]),
        ([HEADER, ROW.replace("25.8", "nan")], ["line 2", "'nan'"]),
        ([HEADER, ROW, ROW], ["line 3", "'K = 2' of en-de is also in", "line 2"]),
        ([HEADER, ROW.replace("en-de", "en-fr")], ["line 2", "tiny.yaml has no pair 'en-fr'", "en-de, de-en"]),
        ([HEADER, ROW.replace("\ttiny", "\tbig")], ["line 2", "has no big.yaml", "it has tiny"]),
        ([HEADER, ROW.replace("shaw-k2", "alibi")], ["line 2", "no experiment 'alibi'", "sinusoidal"]),
        ([HEADER, ROW.replace("test\t", "dev\t")], ["line 2", "no test set 'dev'", "it has test"]),
        ([HEADER + "\twords", ROW + "\t1-2 5-3"], ["line 2", "'5-3' is not a range of source words"]),
    ],
)
def test_a_fault_is_one_sentence_with_file_and_line(recipe: Path, lines: list[str], words: list[str]) -> None:
    path = write_table(recipe, *lines)
    with pytest.raises(RecipeError) as caught:
        plan(recipe)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert text.endswith(".")
    for word in words:
        assert word in text


@pytest.mark.parametrize("name", [None, "papre"])
def test_the_tables_are_named(recipe: Path, name: str | None) -> None:
    write_table(recipe, HEADER, ROW)
    with pytest.raises(RecipeError, match=r"its tables are paper\."):
        read_table(recipe, name)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parents[1].name}/{path.stem}")
def test_the_shipped_tables_name_what_their_confs_have(path: Path, tmp_path: Path) -> None:
    folder = path.parents[1]
    table = read_table(folder, path.stem)
    made = make_rows(table, folder, call(tmp_path))
    assert len(make_plan([row.experiments[0] for row in made], ["train"]).experiment_jobs) == len(table.rows)
