"""Tables with notes as text, Markdown or LaTeX, and their data as CSV."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate  # type: ignore[import-untyped]

FORMATS = ("text", "markdown", "csv", "latex")
#: tabulate's name of each format of a table
_TABULATE = {"text": "simple", "markdown": "github", "latex": "latex_booktabs"}
#: what tabulate does not write for LaTeX; two hyphens of a flag would be a dash
_LATEX = {"±": r"$\pm$", "≈": r"$\approx$", "--": "-{}-"}


def number(value: float | None, form: str) -> str:
    """A number as the text of a cell; empty for None."""
    return "" if value is None else format(value, form)


@dataclass(frozen=True)
class Table:
    """A table: the cells of each column by its header, a title, and notes that explain the numbers."""

    columns: Mapping[str, Iterable[str]]
    notes: Sequence[str]
    title: str = ""
    left: int = 1  # the number of columns that are aligned to the left: the first ones, and "missing"

    def render(self, style: str) -> str:
        """The table with its title and notes, as text, Markdown or LaTeX (with the package booktabs)."""
        grid = tabulate(
            list(zip(*self.columns.values(), strict=True)),
            list(self.columns),
            tablefmt=_TABULATE[style],
            disable_numparse=True,
            colalign=[
                "left" if place < self.left or header == "missing" else "right"
                for place, header in enumerate(self.columns)
            ],
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
    """The tables of one call, and their data with unrounded numbers, a pandas.DataFrame."""

    tables: Sequence[Table]
    data: Any

    def format(self, style: str) -> str:
        """The report in one of FORMATS."""
        if style == "csv":
            return str(self.data.to_csv(index=False, lineterminator="\n"))
        return "\n".join(table.render(style) for table in self.tables)
