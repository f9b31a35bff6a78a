"""Reports: tables with notes as text or Markdown, and the same rows as CSV."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tabulate import tabulate  # type: ignore[import-untyped]

FORMATS = ("text", "markdown", "csv", "latex")
#: tabulate's name of each format of a table
_TABULATE = {"text": "simple", "markdown": "github", "latex": "latex_booktabs"}
#: what tabulate does not write for LaTeX; two hyphens of a flag would be a dash
_LATEX = {"±": r"$\pm$", "≈": r"$\approx$", "--": "-{}-"}
Line = TypeVar("Line")


def number(value: float | None, form: str) -> str:
    """A number as the text of a cell; empty for None."""
    return "" if value is None else format(value, form)


@dataclass(frozen=True)
class Column(Generic[Line]):
    """A column of a table."""

    header: str
    cell: Callable[[Line], str]
    shown: bool = True
    left: bool = False  # aligned to the left, not to the right


@dataclass(frozen=True)
class Table(Generic[Line]):
    """A table: lines in columns, a title, and notes that explain the numbers."""

    lines: Sequence[Line]
    columns: Sequence[Column[Line]]
    notes: Sequence[str]
    title: str = ""

    def render(self, style: str) -> str:
        """The table with its title and notes, as text, Markdown or LaTeX (with the package booktabs)."""
        columns = [column for column in self.columns if column.shown]
        grid = tabulate(
            [[column.cell(line) for column in columns] for line in self.lines],
            [column.header for column in columns],
            tablefmt=_TABULATE[style],
            disable_numparse=True,
            colalign=["left" if column.left else "right" for column in columns],
        )
        title = f"**{self.title}**" if style == "markdown" and self.title else self.title
        bullet = "- " if style == "markdown" and len(self.notes) > 1 else ""
        notes = "\n".join(bullet + note for note in self.notes)
        if style == "latex":
            for character, command in _LATEX.items():
                grid = grid.replace(character, command)
            grid = re.sub(r"(?<![\w}-])-(?=\d)", "$-$", grid)
            title, notes = ("\n".join(f"% {line}" for line in text.splitlines()) for text in (title, notes))
        return "\n\n".join(part for part in (title, grid, notes) if part) + "\n"


@dataclass(frozen=True)
class Report:
    """The tables of one call, and their data."""

    tables: Sequence[Table[Any]]
    records: Sequence[dict[str, object]]  # one for each line of all tables, with unrounded numbers, for CSV

    def format(self, style: str) -> str:
        """The report in one of FORMATS."""
        if style != "csv":
            return "\n".join(table.render(style) for table in self.tables)
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.records)
        return text.getvalue()
