"""Reads a paper's table as a list of settings: `recipes/<corpus>/tables/<name>.tsv`.

Lines that start with `#` are comments; the first is the title of the table.
"""

import math
from pathlib import Path
from typing import NamedTuple

from posenc_experiments.base.errors import RecipeError, meant
from posenc_experiments.data.tsv import read_rows
from posenc_experiments.evaluation.metrics import PAPER_METRICS

COLUMNS = ("row", "pair", "conf", "experiment", "test", "metric", "paper")
NO_FIGURE = "-"


class TableRow(NamedTuple):
    """One row: a setting, the test set that it is scored on, and the paper's figure."""

    row: str  # its label
    pair: str
    conf: str
    experiment: str
    test: str
    metric: str
    paper: float | None
    where: str  # file and line, for errors


class PaperTable(NamedTuple):
    """A table's title and rows."""

    title: str
    rows: list[TableRow]


def read_table(folder: Path, name: str | None) -> PaperTable:
    """Reads and checks a recipe's table; RecipeError, naming file and line, if it is wrong."""
    path = folder / "tables" / f"{name}.tsv"
    if not path.is_file():
        names = sorted(one.stem for one in (folder / "tables").glob("*.tsv"))
        near, tables = meant(name or "", names), ", ".join(names) or "none"
        raise RecipeError(f"{folder} has no table '{name or ''}'{near}: its tables are {tables}.")
    rows = [_read_row(cells, where) for where, cells in read_rows(path, COLUMNS)]
    if not rows:
        raise RecipeError(f"{path} has no rows: add one below its columns.")
    titles = [line[1:].strip() for line in path.read_text(encoding="utf-8-sig").split("\n") if line.startswith("#")]
    return PaperTable(titles[0] if titles else path.stem, rows)


def _read_row(cells: list[str], where: str) -> TableRow:
    label, pair, conf, experiment, test, metric, paper = cells
    if metric not in PAPER_METRICS:
        raise RecipeError(f"{where}: '{metric}' is not a metric; the metrics are {', '.join(PAPER_METRICS)}.")
    try:
        figure = None if paper == NO_FIGURE else float(paper)
    except ValueError:
        figure = math.nan
    if figure is not None and not math.isfinite(figure):
        raise RecipeError(f"{where}: '{paper}' is not a paper's figure; write a number, or {NO_FIGURE} for none.")
    return TableRow(label, pair, conf, experiment, test, metric, figure, where)
