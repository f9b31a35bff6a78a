"""Reads a paper's table as a list of settings: `recipes/<corpus>/tables/<name>.tsv`.

Lines that start with `#` are comments; the first is the title of the table. A last column `words` may list ranges of
numbers of source words, such as `1-14 15-17 18-`: the sentences of each are also scored on their own. A
row of the experiment `*` stands for a row of each experiment of the recipe that no other row names.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.settings import conf_in, read_recipe
from posenc_experiments.data.tsv import read_rows
from posenc_experiments.evaluation.metrics import PAPER_METRICS

COLUMNS = ("row", "pair", "conf", "experiment", "test", "metric", "paper")
OPTIONAL = ("words",)
NO_FIGURE = "-"
EVERY = "*"  # experiment


class TableRow(NamedTuple):
    """One row: a setting, the test set that it is scored on, and the paper's figure."""

    row: str  # its label
    pair: str
    conf: str
    experiment: str
    test: str
    metric: str
    paper: float | None
    words: list[str]  # ranges such as 1-14: the sentences whose sources have so many words are also scored alone
    where: str  # file and line, for errors


class PaperTable(NamedTuple):
    """A table's title and rows."""

    title: str
    rows: list[TableRow]


def read_table(folder: Path, name: str | None, overrides: Sequence[str] = ()) -> PaperTable:
    """Reads and checks a recipe's table; RecipeError, naming file and line, if it is wrong.

    Args:
        overrides: values of `--set`, which may add experiments.
    """
    path = folder / "tables" / f"{name}.tsv"
    if not path.is_file():
        names = ", ".join(sorted(one.stem for one in (folder / "tables").glob("*.tsv"))) or "none"
        raise RecipeError(f"{folder} has no table '{name or ''}': its tables are {names}.")
    listed = [_read_row(cells, where) for where, cells in read_rows(path, COLUMNS, OPTIONAL)]
    rows = []
    for row in listed:
        named = {other.experiment for other in listed if (other.pair, other.conf) == (row.pair, row.conf)}
        experiments = [row.experiment]
        if row.experiment == EVERY:
            known = read_recipe(conf_in(folder, row.conf, row.where), overrides).experiments
            experiments = [one for one in known if one not in named]
        rows += [row._replace(row=one, experiment=one) if one not in named else row for one in experiments]
    if not rows:
        raise RecipeError(f"{path} has no rows: add one below its columns.")
    titles = [line[1:].strip() for line in path.read_text(encoding="utf-8-sig").split("\n") if line.startswith("#")]
    return PaperTable(titles[0] if titles else path.stem, rows)


def _read_row(cells: list[str], where: str) -> TableRow:
    label, pair, conf, experiment, test, metric, paper, *ranges = cells
    words = [word for one in ranges for word in one.split()]
    faults = [f"'{word}' is not a range of source words, such as 1-14 or 15-" for word in words if not _is_range(word)]
    if metric not in PAPER_METRICS:
        faults.append(f"'{metric}' is not a metric; the metrics are {', '.join(PAPER_METRICS)}")
    try:
        figure = None if paper == NO_FIGURE else float(paper)
    except ValueError:
        figure = math.nan
    if figure is not None and not math.isfinite(figure):
        faults.append(f"'{paper}' is not a paper's figure; write a number, or {NO_FIGURE} for none")
    if faults:
        raise RecipeError(f"{where}: {faults[0]}.")
    return TableRow(label, pair, conf, experiment, test, metric, figure, words, where)


def _is_range(text: str) -> bool:
    found = re.fullmatch(r"(\d+)-(\d*)", text)
    return found is not None and int(found[1]) <= int(found[2] or found[1])


def is_within(number: int, words: str) -> bool:
    """Whether a number of words is in a range such as `1-14`, or `15-` for all from 15 on."""
    first, last = words.split("-")
    return int(first) <= number and (not last or number <= int(last))
