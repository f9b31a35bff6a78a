"""Reads tables that people edit: tab-separated, with lines of comments (`#`) and a first row that names the columns."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from posenc_experiments.base.errors import RecipeError


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """The file and line of each row, for errors, and its cells; RecipeError if a row is wrong."""
    try:
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is not UTF-8 ({error}): save it as UTF-8.") from None
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    rows = [(f"{path}, line {number}", [cell.strip() for cell in line.split("\t")]) for number, line in numbered]
    header = rows[0][1] if rows else []
    if header != [*columns]:
        raise RecipeError(f"{path}: the first row must name the columns {', '.join(columns)}, separated by tabs.")
    for where, row in rows[1:]:
        if len(row) != len(columns):
            raise RecipeError(f"{where}: it has {len(row)} columns instead of {len(columns)}; put one tab between two.")
        yield where, row
