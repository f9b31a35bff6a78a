"""Draws tables as panels of lines and of grids of colours, and makes pictures of a page from the drawings."""

from __future__ import annotations

import base64
import io
import itertools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm, Normalize
from matplotlib.figure import Figure as Drawing

INK, QUIET = "#1a1c20", "#c3c7cd"
COLOURS = ("#0068a8", "#b84a00", "#007a5e", "#a03c86", "#806600", "#4a4f57", "#4d47c9", "#a12330")
#: the colours of a dark page in place of INK, QUIET and COLOURS
DARK = (
    *("#e9ebee", "#4a5059"),
    *("#5ab3ee", "#ff9a5a", "#35c79c", "#e08fc8", "#e0c24a", "#c4c9d0", "#a5a1ff", "#ff8080"),
)
MARKERS = "os^D"
MARKS = 24  # the most points of a line that are drawn one by one
STYLE: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **{"font.size": 8, "axes.titlesize": 8, "grid.color": QUIET, "legend.frameon": False},
    **{"font.family": "sans-serif", "svg.fonttype": "none", "svg.hashsalt": "fairseq_posenc", "savefig.dpi": 120},
}


def _panels(count: int, across: int, size: tuple[float, float], **shared: Any) -> tuple[Drawing, Iterator[Axes]]:
    """A drawing of so many panels, of a width and height in inches each, with room for labels and a legend."""
    columns, (width, height) = min(count, across), size
    rows = -(-count // columns)
    whole = columns * (width + 0.65) + 0.1, rows * (height + 0.75) + 0.25
    drawing = Drawing(figsize=whole)
    axes = drawing.subplots(rows, columns, squeeze=False, **shared)
    edges = {
        "left": 0.55 / whole[0],
        "right": 1 - 0.2 / whole[0],
        "bottom": 0.45 / whole[1],
        "top": 1 - 0.55 / whole[1],
    }
    drawing.subplots_adjust(**edges, wspace=0.65 / width, hspace=0.75 / height)
    for unused in axes.flat[count:]:
        unused.remove()
    return drawing, axes.flat[:count]


@rc_context(STYLE)
def lines(table: pd.DataFrame, x: str, y: str, line: str, panel: str, one_scale: bool = False) -> Drawing:
    """A line of y over x for each value of the column `line`, in a panel for each value of the column `panel`.

    If there are more lines than colours, each has a panel of its own, where the others are grey.

    Args:
        table: may have the ends of intervals, `low` and `high`, and `hollow`, which marks points. Values of x that are
            text are categories.
        one_scale: whether all panels have the same y axis.
    """
    names, many = list(dict.fromkeys(table[line])), table[line].nunique() > len(COLOURS)
    shown = list(itertools.product(dict.fromkeys(table[panel]), names if many else [None]))
    drawing, axes = _panels(len(shown), 2 if len(shown) == 4 else 3, (3 if len(shown) > 1 else 4, 2), sharey=one_scale)
    places = {value: number for number, value in enumerate(dict.fromkeys(table[x]))}
    categories = not pd.api.types.is_numeric_dtype(table[x])
    for axis, (title, only) in zip(axes, shown, strict=True):
        of_panel = table[table[panel] == title]
        for number, name in enumerate(names):
            points = of_panel[of_panel[line] == name]
            at = points[x].map(places).to_numpy(float) if categories else points[x].to_numpy(float)
            if many and name != only:
                axis.plot(at, points[y], color=QUIET, linewidth=1, zorder=1)
                continue
            colour = COLOURS[0 if many else number]
            marker = MARKERS[number % len(MARKERS)] if len(points) <= MARKS else ""
            if "low" in points:  # beside each other, so that intervals do not hide each other
                at = at + (0 if many or not categories else 0.06 * (number - (len(names) - 1) / 2))
                axis.vlines(at, points["low"], points["high"], color=colour, linewidth=0.8)
            axis.plot(at, points[y], color=colour, marker=marker, markersize=4, label=name)
            if "hollow" in points and (hollow := points["hollow"].to_numpy(bool)).any():
                style: dict[str, Any] = {"linestyle": "", "marker": marker, "markersize": 4, "markerfacecolor": "white"}
                axis.plot(at[hollow], points[y][hollow], color=colour, **style)
        if categories:
            axis.set_xticks(range(len(places)), [str(value) for value in places])
        axis.set(title=" · ".join(filter(None, (title, only))), xlabel=x, ylabel=y)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y")
    if not many:
        key = {
            label: handle
            for axis in drawing.axes
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        drawing.legend(key.values(), key, loc="upper left", ncols=4, handlelength=1.5)
    return drawing


@rc_context(STYLE)
def grids(table: pd.DataFrame, row: str, column: str, value: str, panel: str, norm: Normalize) -> Drawing:
    """A grid of colours for each value of the column `panel`, all with one scale, which is shown above them."""
    matrices = {
        title: one.pivot(index=row, columns=column, values=value) for title, one in table.groupby(panel, sort=False)
    }
    cells = max(max(matrix.shape) for matrix in matrices.values())
    inches = [min(0.22, 2.2 / cells) * max(one.shape[side] for one in matrices.values()) for side in (1, 0)]
    size = max(inches[0], 0.7), max(inches[1], 0.5)
    drawing, axes = _panels(len(matrices), int(11 // (size[0] + 0.65)), size)
    colours = "RdBu_r" if isinstance(norm, CenteredNorm) else "viridis"
    for axis, (title, matrix) in zip(axes, matrices.items(), strict=True):
        axis.imshow(matrix.to_numpy(float), colours, norm, aspect="auto", interpolation="none")
        for labels, room, ticks in ((matrix.columns, 0.2, axis.set_xticks), (matrix.index, 0.14, axis.set_yticks)):
            step = max(1, int(np.ceil(room * len(labels) / size[ticks == axis.set_yticks])))
            ticks(range(0, len(labels), step), [f"{label:g}" for label in labels[::step]])
        axis.set(title=title, xlabel=column, ylabel=row)
    width, height = drawing.get_size_inches()
    bar = drawing.add_axes((0.55 / width, 1 - 0.15 / height, 1 / width, 0.1 / height))
    ends = [float(end) for end in (norm.vmin, norm.vmax) if end is not None]
    bar.imshow(
        np.linspace(ends[0], ends[1], 64)[None], colours, norm, aspect="auto", interpolation="none", extent=(0, 1, 0, 1)
    )
    bar.set(xticks=[], yticks=[])
    for place, end, side in zip((-0.05, 1.05), ends, ("right", "left"), strict=True):
        bar.text(place, 0.5, f"{end:.3g}", horizontalalignment=side, verticalalignment="center")
    return drawing


def norm_of(values: pd.Series, diverging: bool) -> Normalize:
    """One scale for all these values, around zero if both sides count."""
    low, high = values.min(), values.max()
    if diverging:
        return CenteredNorm(0, max(abs(low), abs(high)) or 1)
    return Normalize(low, high if high > low else low + 1)


@rc_context(STYLE)
def picture(drawing: Drawing, text: str) -> Markup:
    """The drawing as an element of a page, light or dark as the reader's system is, with a text in place of it."""
    file = io.StringIO()
    drawing.savefig(file, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg, light = re.sub(r"(?<=font-family: )[^;\"]*", "sans-serif", file.getvalue()), (INK, QUIET, *COLOURS)
    for number, colour in enumerate(light):
        svg = svg.replace(colour, f"var(--c{number})")
    rules = [
        f":root {{ {' '.join(f'--c{number}: {colour};' for number, colour in enumerate(side))} }}"
        for side in (light, DARK)
    ]
    style = f'<style type="text/css">{rules[0]} @media (prefers-color-scheme: dark) {{ {rules[1]} }} '
    data = base64.b64encode(svg.replace('<style type="text/css">', style, 1).encode()).decode()
    return Markup('<img src="data:image/svg+xml;base64,{}" alt="{}">').format(data, text)
