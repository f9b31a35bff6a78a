"""Reads a paper's table as a list of settings: `recipes/<corpus>/tables/<name>.tsv`.

Lines that start with `#` are comments; the first is the title of the table. A last column `words` may list ranges of
numbers of source words, such as `1-14 15-17 18-`: the sentences of each are also scored on their own. A
row of the experiment `*` stands for a row of each experiment of the recipe that no other row names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.settings import conf_in, read_recipe
from posenc_experiments.data.tsv import read_rows
from posenc_experiments.evaluation.metrics import PAPER_METRICS
from posenc_experiments.experiment.experiment import Experiment

COLUMNS = ("row", "pair", "conf", "experiment", "test", "metric", "paper")
OPTIONAL = ("words",)
NO_FIGURE = "-"
EVERY = "*"  # experiment


@dataclass(frozen=True)
class WordRange:
    """A range of numbers of words."""

    first: int
    last: int | None  # None: any number from `first` on

    def __contains__(self, number: int) -> bool:
        return self.first <= number and (self.last is None or number <= self.last)

    def __str__(self) -> str:
        return f"{self.first}-{'' if self.last is None else self.last}"


def parse_word_range(text: str) -> WordRange:
    """Reads `1-14` or `15-`; ValueError if it is neither."""
    found = re.fullmatch(r"(\d+)-(\d*)", text)
    if not found or (found[2] and int(found[1]) > int(found[2])):
        raise ValueError(f"'{text}' is not a range of source words; write one such as 1-14, or 15- for all from 15 on")
    return WordRange(int(found[1]), int(found[2]) if found[2] else None)


@dataclass(frozen=True)
class TableRow:
    """One line: a setting, the test set that it is scored on, and the paper's figure."""

    label: str
    pair: str
    conf: str
    experiment: str
    test: str
    metric: str
    paper: float | None
    where: str  # file and line, for errors
    words: tuple[WordRange, ...] = ()  # the sentences whose sources have so many words are also scored on their own


@dataclass(frozen=True)
class Planned:
    """A row and its experiments, one for each seed."""

    row: TableRow
    experiments: list[Experiment]


@dataclass(frozen=True)
class PaperTable:
    """A paper's table: its name, title and rows."""

    name: str
    title: str
    rows: list[TableRow]


def read_table(folder: Path, name: str | None, overrides: Sequence[str] = ()) -> PaperTable:
    """Reads and checks a recipe's table; RecipeError, naming file and line, if it is wrong.

    Args:
        overrides: values of `--set`, which may add experiments.
    """
    path = folder / "tables" / f"{name}.tsv"
    if name is None or not path.is_file():
        names = ", ".join(sorted(one.stem for one in (folder / "tables").glob("*.tsv"))) or "none"
        asked = "name one of its tables" if name is None else f"it has no table '{name}'"
        raise RecipeError(f"{folder}: {asked}; its tables are {names}.")
    listed = [_read_row(cells, where) for where, cells in read_rows(path, COLUMNS, OPTIONAL)]
    rows = [one for row in listed for one in _expanded(row, folder, listed, overrides)]
    titles = [line[1:].strip() for line in path.read_text(encoding="utf-8-sig").split("\n") if line.startswith("#")]
    if not rows:
        raise RecipeError(f"{path} has no rows: add one below its columns.")
    seen: dict[tuple[str, str, str], str] = {}
    for row in rows:
        other = seen.setdefault((row.label, row.pair, row.test), row.where)
        if other != row.where:
            raise RecipeError(f"{row.where}: row '{row.label}' of {row.pair} is also in {other}; rename one of them.")
    return PaperTable(name, titles[0] if titles else name, rows)


def _expanded(row: TableRow, folder: Path, listed: Sequence[TableRow], overrides: Sequence[str]) -> list[TableRow]:
    """The row; for `*`, a row for each experiment of its recipe that no other row names."""
    if row.experiment != EVERY:
        return [row]
    named = {other.experiment for other in listed if (other.pair, other.conf) == (row.pair, row.conf)}
    names = read_recipe(conf_in(folder, row.conf, row.where), overrides).experiments
    return [replace(row, label=name, experiment=name) for name in names if name not in named]


def _read_row(cells: list[str], where: str) -> TableRow:
    label, pair, conf, experiment, test, metric, paper, *ranges = cells
    if metric not in PAPER_METRICS:
        *others, last = PAPER_METRICS
        raise RecipeError(f"{where}: '{metric}' is not a metric; the metrics are {', '.join(others)} and {last}.")
    try:
        figure = None if paper == NO_FIGURE else float(paper)
    except ValueError:
        figure = math.nan
    if figure is not None and not math.isfinite(figure):
        raise RecipeError(f"{where}: '{paper}' is not a paper's figure; write a number, or {NO_FIGURE} for none.")
    try:
        words = tuple(parse_word_range(text) for one in ranges for text in one.split())
    except ValueError as error:
        raise RecipeError(f"{where}: {error}.") from None
    return TableRow(label, pair, conf, experiment, test, metric, figure, where, words)
