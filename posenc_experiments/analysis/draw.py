"""Draws tables as panels of lines and of grids of colours."""

from __future__ import annotations

import base64
import io
import textwrap
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm, Normalize
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from posenc_experiments.evaluation.plots.colours import COLOURS, LINES, MARKERS, OTHERS, Style, encoding_in, styles

#: inches of the page's column, and how many letters an inch has
WIDTH, LETTERS = 11.9, 12.5
STYLE: dict[Any, Any] = {
    **{"font.size": 9, "axes.titlesize": 9, "axes.spines.top": False, "axes.spines.right": False},
    **{"legend.frameon": False, "lines.markersize": 4, "svg.fonttype": "none", "svg.hashsalt": "fairseq_posenc"},
}


def _panels(count: int, columns: int, width: float, height: float) -> tuple[Drawing, list[Axes]]:
    """A drawing of so many panels in so many columns, of a width and height in inches each, labels included."""
    rows = -(-count // columns)
    drawing = Drawing(figsize=(columns * width, rows * height), layout="constrained")
    return drawing, [drawing.add_subplot(rows, columns, number) for number in range(1, count + 1)]


def _wrapped(text: str, inches: float) -> str:
    """The text in lines that are no longer than this."""
    return textwrap.fill(text, max(8, int(inches * LETTERS)), break_on_hyphens=False)


def _legend(drawing: Drawing, shown: dict[str, Line2D]) -> None:
    """A legend above all panels, with as many columns as its names leave room for, and makes room for it."""
    width, height = drawing.get_size_inches()
    names = [_wrapped(name, width / 2 - 0.7) for name in shown]
    longest = max(len(line) for name in names for line in name.splitlines())
    columns = max(1, min(len(names), int(width / (0.7 + longest / LETTERS))))
    lines = -(-sum(name.count("\n") + 1 for name in names) // columns)
    drawing.set_size_inches(width, height + 0.19 * lines)
    drawing.legend(shown.values(), names, loc="outside upper left", ncols=columns)


@rc_context(STYLE)
def lines(table: pd.DataFrame, x: str, y: str, line: str, panel: str) -> Drawing:
    """A line of y over x for each value of the column `line`, in a panel for each value of the column `panel`.

    The table may have the ends of intervals, `low` and `high`, and `hollow`, which marks points. Values of x that are
    text are categories.
    """
    names, places = list(dict.fromkeys(table[line])), list(dict.fromkeys(table[x]))
    categories = not pd.api.types.is_numeric_dtype(table[x])
    panels = table.groupby(panel, sort=False)
    columns = 2 if len(panels) in (2, 4) else min(len(panels), 3)
    width = min(WIDTH / columns, 7)
    drawing, axes = _panels(len(panels), columns, width, 2.9 if columns < 3 else 2.5)
    series = _styles_of(names, line)
    shown: dict[str, Line2D] = {}
    for axis, (title, part) in zip(axes, panels, strict=True):
        for name, points in part.groupby(line, sort=False):
            style = series[name]
            at = points[x].map(places.index).to_numpy(float) if categories else points[x].to_numpy(float)
            if "low" in points:  # beside each other, so that intervals do not hide each other
                at += 0.06 * (names.index(name) - (len(names) - 1) / 2)
                axis.vlines(at, points["low"], points["high"], color=style.colour, linewidth=0.8)
            marks: dict[str, Any] = {"marker": style.marker, "markevery": max(1, len(points) // 12)}
            (shown[name],) = axis.plot(at, points[y], color=style.colour, linestyle=style.line, **marks)
            if "hollow" in points:
                hollow = points["hollow"].to_numpy(bool)
                axis.plot(at[hollow], points[y][hollow], "o", color=style.colour, markerfacecolor="white")
        if categories:
            axis.set_xticks(range(len(places)), places)
        axis.set(title=_wrapped(title, width - 0.6), xlabel=x, ylabel=y)
        axis.grid(axis="y", alpha=0.4)
    _legend(drawing, shown)
    return drawing


def _styles_of(names: list[str], line: str) -> dict[str, Style]:
    """How lines are drawn: an experiment has its encoding's colour; heads and layers take turns."""
    if line == "experiment":
        return styles((name, encoding_in(name)) for name in names)
    colours = [*COLOURS.values(), *OTHERS]
    return {
        name: Style(
            colours[number % len(colours)], LINES[number // len(COLOURS) % len(LINES)], MARKERS[number % len(MARKERS)]
        )
        for number, name in enumerate(names)
    }


@rc_context(STYLE)
def grids(table: pd.DataFrame, row: str, column: str, value: str, panel: str, norm: Normalize) -> Drawing:
    """A grid of colours for each value of the column `panel`, all with one scale, which is shown beside them."""
    matrices = {
        title: part.pivot(index=row, columns=column, values=value) for title, part in table.groupby(panel, sort=False)
    }
    rows, columns = (max(matrix.shape[side] for matrix in matrices.values()) for side in (0, 1))
    inches = min(0.4, 2.3 / max(rows, columns))  # of a cell
    width = max(columns * inches, 1.3) + 0.7
    across = min(len(matrices), int((WIDTH - 0.8) // width))
    titles = [_wrapped(title, width) for title in matrices]
    height = max(rows * inches, 0.6) + 0.65 + 0.17 * max(title.count("\n") + 1 for title in titles)
    drawing, axes = _panels(len(matrices), across, width, height)
    drawing.set_figwidth(drawing.get_figwidth() + 0.8)  # for the scale
    colours = "RdBu_r" if isinstance(norm, CenteredNorm) else "viridis"
    for axis, title, matrix in zip(axes, titles, matrices.values(), strict=True):
        left, right, top, bottom = (labels[end] for labels in (matrix.columns, matrix.index) for end in (0, -1))
        edges = left - 0.5, right + 0.5, bottom + 0.5, top - 0.5
        image = axis.imshow(matrix.to_numpy(float), colours, norm, interpolation="none", extent=edges)
        axis.locator_params(integer=True)
        axis.set(title=title, xlabel=column, ylabel=row)
    scale: dict[str, Any] = {"aspect": 10, "shrink": 0.8 / -(-len(matrices) // across), "anchor": (0, 1)}
    drawing.colorbar(image, ax=axes, ticks=[norm.vmin, norm.vmax], format="%.3g", **scale)
    return drawing


def norm_of(values: pd.Series, diverging: bool) -> Normalize:
    """One scale for all these values, around zero if both sides count."""
    if diverging:
        return CenteredNorm(0, values.abs().max() or 1)
    low, high = values.min(), values.max()
    return Normalize(low, max(high, np.nextafter(low, np.inf)))


@rc_context(STYLE)
def picture(drawing: Drawing, text: str) -> Markup:
    """The drawing as an element of a page, with a text in place of it."""
    file = io.BytesIO()
    drawing.savefig(file, format="svg", metadata={"Date": None})
    data = base64.b64encode(file.getvalue()).decode()
    return Markup('<img src="data:image/svg+xml;base64,{}" alt="{}">').format(data, text)
