"""Draws tables as panels of lines and of grids of colours."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib import colormaps, rc_context
from matplotlib.colors import CenteredNorm, Normalize
from matplotlib.figure import Figure as Drawing

COLOURS = colormaps["tab20"].colors[::2] + colormaps["tab20"].colors[1::2]  # type: ignore[attr-defined]
STYLE: dict[Any, Any] = {
    **{"font.size": 8, "axes.titlesize": 8, "axes.spines.top": False, "axes.spines.right": False},
    **{"legend.frameon": False, "lines.markersize": 4, "svg.fonttype": "none", "svg.hashsalt": "fairseq_posenc"},
}


def _panels(count: int, across: int, width: float, height: float) -> tuple[Drawing, list[Any]]:
    """A drawing of so many panels, of a width and height in inches each, with room for labels and what is above all."""
    columns = min(count, across)
    rows = -(-count // columns)
    left, right, bottom, top = 0.6, 0.2, 0.45, 0.65
    whole = columns * (width + left) + right, rows * (height + 0.75) + top - 0.3
    drawing = Drawing(figsize=whole)
    drawing.subplots_adjust(
        *(left / whole[0], bottom / whole[1], 1 - right / whole[0], 1 - top / whole[1]), left / width, 0.75 / height
    )
    return drawing, [drawing.add_subplot(rows, columns, number) for number in range(1, count + 1)]


@rc_context(STYLE)
def lines(table: pd.DataFrame, x: str, y: str, line: str, panel: str) -> Drawing:
    """A line of y over x for each value of the column `line`, in a panel for each value of the column `panel`.

    The table may have the ends of intervals, `low` and `high`, and `hollow`, which marks points. Values of x that are
    text are categories.
    """
    names, places = list(dict.fromkeys(table[line])), list(dict.fromkeys(table[x]))
    categories = not pd.api.types.is_numeric_dtype(table[x])
    panels = table.groupby(panel, sort=False)
    drawing, axes = _panels(len(panels), 2 if len(panels) == 4 else 3, 3, 2)
    shown = {}
    for axis, (title, of_panel) in zip(axes, panels, strict=True):
        for name, points in of_panel.groupby(line, sort=False):
            number = names.index(name)
            colour = COLOURS[number % len(COLOURS)]
            at = points[x].map(places.index).to_numpy(float) if categories else points[x].to_numpy(float)
            if "low" in points:  # beside each other, so that intervals do not hide each other
                at += 0.06 * (number - (len(names) - 1) / 2)
                axis.vlines(at, points["low"], points["high"], color=colour, linewidth=0.8)
            marker = "os^D"[number % 4] if len(points) < 25 else ""
            (shown[name],) = axis.plot(at, points[y], color=colour, marker=marker)
            if "hollow" in points:
                hollow = points["hollow"].to_numpy(bool)
                axis.plot(at[hollow], points[y][hollow], "o", color=colour, markerfacecolor="white")
        if categories:
            axis.set_xticks(range(len(places)), places)
        axis.set(title=title, xlabel=x, ylabel=y)
        axis.grid(axis="y")
    drawing.legend(shown.values(), shown, loc="upper left", ncols=4)
    return drawing


@rc_context(STYLE)
def grids(table: pd.DataFrame, row: str, column: str, value: str, panel: str, norm: Normalize) -> Drawing:
    """A grid of colours for each value of the column `panel`, all with one scale, which is shown above them."""
    matrices = {
        title: part.pivot(index=row, columns=column, values=value) for title, part in table.groupby(panel, sort=False)
    }
    rows, columns = (max(matrix.shape[side] for matrix in matrices.values()) for side in (0, 1))
    inches = min(0.22, 2.2 / max(rows, columns))  # of a cell
    width, height = max(columns * inches, 0.7), max(rows * inches, 0.5)
    drawing, axes = _panels(len(matrices), int(11 // (width + 0.6)), width, height)
    colours = "RdBu_r" if isinstance(norm, CenteredNorm) else "viridis"
    for axis, (title, matrix) in zip(axes, matrices.items(), strict=True):
        left, right, top, bottom = (labels[end] for labels in (matrix.columns, matrix.index) for end in (0, -1))
        edges = left - 0.5, right + 0.5, bottom + 0.5, top - 0.5
        image = axis.imshow(matrix.to_numpy(float), colours, norm, interpolation="none", extent=edges)
        axis.locator_params(integer=True)
        axis.set(title=title, xlabel=column, ylabel=row)
    width, height = drawing.get_size_inches()
    scale = drawing.add_axes((0.2 / width, 1 - 0.1 / height, 1 / width, 0.08 / height))
    drawing.colorbar(image, cax=scale, orientation="horizontal", ticks=[norm.vmin, norm.vmax], format="%.3g")
    return drawing


def norm_of(values: pd.Series, diverging: bool) -> Normalize:
    """One scale for all these values, around zero if both sides count."""
    low, high = values.min(), values.max()
    return (
        CenteredNorm(0, values.abs().max() or 1) if diverging else Normalize(low, max(high, np.nextafter(low, np.inf)))
    )


@rc_context(STYLE)
def picture(drawing: Drawing, text: str) -> Markup:
    """The drawing as an element of a page, with a text in place of it."""
    file = io.BytesIO()
    drawing.savefig(file, format="svg", metadata={"Date": None})
    data = base64.b64encode(file.getvalue()).decode()
    return Markup('<img src="data:image/svg+xml;base64,{}" alt="{}">').format(data, text)
