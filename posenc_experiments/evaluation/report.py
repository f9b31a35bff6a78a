"""Reports: tables with notes for readers, as text or Markdown, and the same rows as CSV for programs."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tabulate import tabulate  # type: ignore[import-untyped]

FORMATS = ("text", "markdown", "csv")
Line = TypeVar("Line")


def number(value: float | None, form: str) -> str:
    """A cell; empty if there is no value."""
    return "" if value is None else format(value, form)


@dataclass(frozen=True)
class Column(Generic[Line]):
    """A column of a table, and whether the table has it."""

    header: str
    cell: Callable[[Line], str]
    shown: bool = True
    left: bool = False  # aligned


@dataclass(frozen=True)
class Table(Generic[Line]):
    """Lines in columns, under a title, with what a reader must know beside the numbers."""

    lines: Sequence[Line]
    columns: Sequence[Column[Line]]
    notes: Sequence[str]
    title: str = ""

    def render(self, markdown: bool) -> str:
        """The table with its title and notes."""
        columns = [column for column in self.columns if column.shown]
        grid = tabulate(
            [[column.cell(line) for column in columns] for line in self.lines],
            [column.header for column in columns],
            tablefmt="github" if markdown else "simple",
            disable_numparse=True,
            colalign=["left" if column.left else "right" for column in columns],
        )
        title = f"**{self.title}**" if markdown and self.title else self.title
        bullet = "- " if markdown and len(self.notes) > 1 else ""
        parts = (title, grid, "\n".join(bullet + note for note in self.notes))
        return "\n\n".join(part for part in parts if part) + "\n"


@dataclass(frozen=True)
class Report:
    """What one call shows."""

    tables: Sequence[Table[Any]]
    records: Sequence[dict[str, object]]  # of every line of all tables, every number unrounded and on its own

    def format(self, style: str) -> str:
        """The report in one of FORMATS."""
        if style != "csv":
            return "\n".join(table.render(style == "markdown") for table in self.tables)
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.records)
        return text.getvalue()
