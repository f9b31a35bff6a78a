"""Tables with notes as text, Markdown or LaTeX, and their data as CSV."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate  # type: ignore[import-untyped]

FORMATS = ("text", "markdown", "csv", "latex")
#: tabulate's name of each format of a table
_TABULATE = {"text": "simple", "markdown": "github", "latex": "latex_booktabs"}
#: what tabulate does not write for LaTeX; two hyphens of a flag would be a dash
_LATEX = {"±": r"$\pm$", "--": "-{}-"}

#: what a spreadsheet takes as the beginning of a formula; flags have no sign with which it could compute
_FORMULA, _FLAGS = re.compile(r"[=+\-@\t\r]"), re.compile(r"--[a-z][a-z-]*( [\w., /-]*)?")


def number(value: float | None, form: str) -> str:
    """A number as the text of a cell; empty for None."""
    return "" if value is None else format(value, form)


@dataclass(frozen=True)
class Table:
    """A table: the cells of each column by its header, notes that explain the numbers, a title, and shared flags."""

    columns: Mapping[str, Iterable[str]]
    notes: Sequence[str]
    title: str = ""
    shared: str = ""  # the flags that all rows have
    left: int = 1  # the number of columns that are aligned to the left: the first ones, and those of words

    def render(self, style: str) -> str:
        """The table with its title and notes, as text, Markdown or LaTeX (with the package booktabs)."""
        clean = _in_markdown if style == "markdown" else _in_one_line
        bar = "&#124;" if style == "markdown" else "|"
        columns = [[clean(one).replace("|", bar) for one in (name, *cells)] for name, cells in self.columns.items()]
        headers, *rows = zip(*columns, strict=True)
        grid = tabulate(
            rows,
            headers,
            tablefmt=_TABULATE[style],
            disable_numparse=True,
            colalign=[
                "left" if place < self.left or header in ("missing", "verdict") else "right"
                for place, header in enumerate(self.columns)
            ],
        )
        title = f"**{clean(self.title)}**" if style == "markdown" and self.title else clean(self.title)
        if self.shared:
            title += ("\n\n" if style == "markdown" else "\n") + f"All rows: {clean(self.shared)}"
        bullet = "- " if style == "markdown" and len(self.notes) > 1 else ""
        notes = "\n".join(bullet + clean(note) for note in self.notes)
        if style == "latex":
            for character, command in _LATEX.items():
                grid = grid.replace(character, command)
            grid = re.sub(r"(?<![\w}-])-(?=\d)", "$-$", grid)
            title, notes = ("\n".join(f"% {line}" for line in text.splitlines()) for text in (title, notes))
        return "\n\n".join(part for part in (title, grid, notes) if part) + "\n"


@dataclass(frozen=True)
class Report:
    """The tables of one call, and their data with unrounded numbers, a pandas.DataFrame."""

    tables: Sequence[Table]
    data: Any

    def format(self, style: str) -> str:
        """The report in one of FORMATS."""
        if style == "csv":
            rows = csv.reader(io.StringIO(self.data.to_csv(index=False, lineterminator="\n"), newline=""))
            text = io.StringIO(newline="")
            csv.writer(text, lineterminator="\n").writerows([list(map(_not_computed, row)) for row in rows])
            return text.getvalue()
        return "\n".join(table.render(style) for table in self.tables)


def _in_one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _in_markdown(text: str) -> str:
    """The text in one line, in which Markdown sees neither HTML nor an entity."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", re.sub(r"&(?=#?\w+;)", "&amp;", _in_one_line(text)))


def _not_computed(cell: str) -> str:
    """A cell of a CSV, with an apostrophe if a spreadsheet would compute it; a number stays a number."""
    if not _FORMULA.match(cell) or _FLAGS.fullmatch(cell):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
