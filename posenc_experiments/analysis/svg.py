"""Small drawings as SVG: lines over a number or over categories, and grids of colours.

Colours of lines and text are the page's (classes `s0` to `s7`, `other`), so that a drawing is light or dark with it.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from markupsafe import Markup, escape
from matplotlib import colormaps
from matplotlib.image import imsave
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

COLOURS = 8
WIDTH, HEIGHT = 340, 230
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 8, 40
MARKERS = ("M-3,0a3,3 0 1,0 6,0a3,3 0 1,0-6,0z", "M-3-3h6v6h-6z", "M0-4l4,7h-8z", "M0-4l4,4-4,4-4-4z")
MARKS = 24  # the most points of a line that are drawn one by one
#: what colours mean: from least to most, or away from zero to both sides
SEQUENTIAL, DIVERGING = "viridis", "RdBu_r"

Value = float | None
Limits = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A line of a chart, with the ends of an interval around each point if there are any."""

    name: str
    points: Sequence[tuple[float, Value]]
    style: str  # a class of the page's
    intervals: Sequence[tuple[float, float]] = ()
    hollow: frozenset[int] = field(default_factory=frozenset)  # numbers of points that are marked


def style(number: int) -> str:
    """The class of the line of this number; more lines than colours are dashed."""
    return f"s{number % COLOURS}" + (" dashed" if number // COLOURS % 2 else "")


def marker(number: int) -> Markup:
    """The sign of a line, for a legend."""
    shape = MARKERS[number % len(MARKERS)]
    return Markup('<svg class="key {}" width="14" height="12" viewBox="-7 -6 14 12" aria-hidden="true">').format(
        style(number)
    ) + Markup('<path class="line" d="M-7,0h14"/><path class="mark" d="{}"/></svg>').format(shape)


def limits_of(values: Sequence[Value]) -> Limits:
    """Least and largest of the values that are there, never equal."""
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def chart(
    lines: Sequence[Line],
    alt: str,
    x_label: str,
    y_label: str,
    categories: Sequence[tuple[float, str]] | None = None,
    y_limits: Limits | None = None,
) -> Markup:
    """Lines over x; `categories` are x's ticks, which are chosen if there are none."""
    xs = [x for line in lines for x, _ in line.points] + [x for x, _ in categories or ()]
    values: list[Value] = [y for line in lines for _, y in line.points]
    values += [end for line in lines for two in line.intervals for end in two]
    y_ticks = MaxNLocator(5).tick_values(*(y_limits or limits_of(values)))
    x_ticks = categories or [(x, _number(x)) for x in MaxNLocator(6, integer=True).tick_values(*limits_of(list(xs)))]
    x_range = limits_of([*xs, *(x for x, _ in x_ticks)] if categories is None else list(xs))
    if categories is not None:  # room beside the first and the last
        pad = 0.4 * (x_range[1] - x_range[0]) / max(len(categories), 2)
        x_range = x_range[0] - pad, x_range[1] + pad

    def place(x: float, y: float) -> tuple[float, float]:
        right = (x - x_range[0]) / (x_range[1] - x_range[0]) * (WIDTH - LEFT - RIGHT)
        up = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * (HEIGHT - TOP - BOTTOM)
        return round(LEFT + right, 1), round(HEIGHT - BOTTOM - up, 1)

    parts = [_open(WIDTH, HEIGHT, alt)]
    for y in y_ticks:
        _, at = place(x_range[0], float(y))
        parts.append(f'<path class="grid" d="M{LEFT},{at}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{at + 3.5}" text-anchor="end">{_number(float(y))}</text>')
    for x, label in x_ticks:
        at, _ = place(x, float(y_ticks[0]))
        parts.append(f'<text x="{at}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{escape(label)}</text>')
    parts.append(_label(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 7, x_label))
    parts.append(_label(10, TOP + (HEIGHT - TOP - BOTTOM) / 2, y_label, turned=True))
    for number, line in enumerate(lines):
        parts += _line(number, line, place)
    return Markup("".join([*parts, "</svg>"]))


def _line(number: int, line: Line, place: Callable[[float, float], tuple[float, float]]) -> list[str]:
    """A line with its marks and intervals; `place` has the pixels of x and y."""
    parts = [f'<g class="{line.style}"><title>{escape(line.name)}</title>']
    for (x, _), ends in zip(line.points, line.intervals, strict=False):
        low, high = (place(x, end) for end in ends)
        parts.append(f'<path class="interval" d="M{low[0]},{low[1]}V{high[1]}"/>')
    pieces: list[list[str]] = [[]]  # a line breaks where a value is missing
    for x, y in line.points:
        if y is None:
            pieces.append([])
        else:
            pieces[-1].append("{},{}".format(*place(x, y)))
    path = "".join("M" + "L".join(piece) for piece in pieces if piece)
    parts.append(f'<path class="line" d="{path}"/>')
    if len(line.points) <= MARKS and line.style != "other":
        for at, (x, y) in enumerate(line.points):
            if y is not None:
                kind = "mark hollow" if at in line.hollow else "mark"
                where = "{},{}".format(*place(x, y))
                parts.append(
                    f'<path class="{kind}" transform="translate({where})" d="{MARKERS[number % len(MARKERS)]}"/>'
                )
    return [*parts, "</g>"]


def heatmap(
    values: Sequence[Sequence[Value]],
    alt: str,
    limits: Limits,
    colours: str,
    rows: str,
    columns: str,
    ticks: tuple[Sequence[str], Sequence[str]] | None = None,
) -> Markup:
    """A grid of colours.

    Args:
        rows: the name of the vertical axis.
        columns: the name of the horizontal axis.
        ticks: the labels of the rows and of the columns, of which those are shown that there is room for; by default
            their numbers, from 1.
    """
    cells = np.array([[np.nan if value is None else value for value in row] for row in values], dtype=float)
    count, width = cells.shape
    cell = min(22, max(3, 240 // max(cells.shape)))  # pixels
    left, top, bottom = 34, 6, 32
    across, down = width * cell, count * cell
    y_ticks, x_ticks = ticks or ([str(row + 1) for row in range(count)], [str(column + 1) for column in range(width)])
    size = f'x="{left}" y="{top}" width="{across}" height="{down}"'
    parts = [
        _open(max(across + left + 6, 92), top + down + bottom, alt),
        f'<image {size} preserveAspectRatio="none" href="{_png(cells, limits, colours)}"/>',
        f'<rect class="frame" {size}/>',
    ]
    for row, label in _shown(y_ticks, cell, 11):
        parts.append(
            f'<text x="{left - 4}" y="{top + (row + 0.5) * cell + 3.5}" text-anchor="end">{escape(label)}</text>'
        )
    for column, label in _shown(x_ticks, cell, 20):
        at = left + (column + 0.5) * cell
        parts.append(f'<text x="{at}" y="{top + down + 13}" text-anchor="middle">{escape(label)}</text>')
    parts.append(_label(left + across / 2, top + down + 27, columns))
    parts.append(_label(9, top + down / 2, rows, turned=True))
    return Markup("".join([*parts, "</svg>"]))


def _shown(labels: Sequence[str], cell: float, room: float) -> list[tuple[int, str]]:
    """As many labels as there is room for, the first among them."""
    step = max(1, -(-int(room) // int(cell))) if len(labels) > 1 else 1
    return [(number, label) for number, label in enumerate(labels) if number % step == 0]


def scale(limits: Limits, colours: str, meaning: str) -> Markup:
    """The legend of grids of colours."""
    ramp = np.linspace(*limits, 64)[None]
    numbers = " to ".join(_number(end) for end in limits)
    return Markup(
        '<p class="scale"><span>{}</span> <svg width="160" height="12" role="img" aria-label="{}"><image width="160" '
        'height="12" preserveAspectRatio="none" href="{}"/></svg> <span>{}</span> <span>({})</span></p>'
    ).format(_number(limits[0]), f"colours from {numbers}", _png(ramp, limits, colours), _number(limits[1]), meaning)


def _label(x: float, y: float, text: str, *, turned: bool = False) -> str:
    """What an axis shows; turned, it reads upwards."""
    place = f'transform="translate({x},{y}) rotate(-90)"' if turned else f'x="{x}" y="{y}"'
    return f'<text class="label" {place} text-anchor="middle">{escape(text)}</text>'


def _open(width: float, height: float, alt: str) -> str:
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(alt)}">'
    )


def _png(cells: NDArray[np.float64], limits: Limits, colours: str) -> str:
    """A pixel a cell; missing values are transparent."""
    low, high = limits
    rgba = colormaps[colours]((cells - low) / (high - low))
    rgba[np.isnan(cells)] = 0
    picture = io.BytesIO()
    imsave(picture, rgba, format="png", metadata={"Software": ""})
    return "data:image/png;base64," + base64.b64encode(picture.getvalue()).decode("ascii")


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
