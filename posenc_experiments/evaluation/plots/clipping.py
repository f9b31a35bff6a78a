"""Plots BLEU against clipping distance."""

import itertools
import math
import re
import statistics
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import atomic_path
from posenc_experiments.base.languages import language_name
from posenc_experiments.evaluation.plots.colours import Style, encoding_in, styles
from posenc_experiments.evaluation.statistics.pooling import PooledRow, Setting, split_shared

#: the flag of the clipping distance, with K
CLIPPING = r"--clipping-distance (\d+) ?"
#: names of corpora in titles; others stay as they are
CORPORA = {"iwslt14": "IWSLT'14", "kftt": "KFTT", "multi30k": "Multi30k", "quickstart": "Quickstart"}
CORPORA |= {"wmt14": "WMT14", "wmt18": "WMT18"}
#: with more encodings without a clipping distance, each has a place on the x-axis instead of a horizontal line
MOST_LINES = 5
#: the y-axis is broken where its largest gap has so many points, and is so large a part of the range above it
GAP, GAP_PART = 2.0, 0.5
STYLE: dict[Any, Any] = {
    **{"font.size": 10, "axes.titlesize": 10, "lines.markersize": 5, "legend.frameon": False},
    **{"axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "fairseq_posenc"},
}


@dataclass(frozen=True)
class Point:
    """A row as a panel shows it."""

    row: PooledRow
    distance: float | None  # the clipping distance, if it has one
    series: str  # its name in the legend; rows that differ in the clipping distance only are one series
    is_curve: bool  # whether the series has several distances

    @property
    def score(self) -> float:
        return self.row.bleu.mean

    @property
    def error(self) -> float:
        return self.row.bleu.error or 0.0


def plot(tables: Sequence[Sequence[PooledRow]], path: Path) -> Path:
    """Writes a plot of BLEU against clipping distance, with one panel for each corpus, pair and test set.

    Encodings without a clipping distance are horizontal lines or, if they are many, points beside the curves.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    panels = list(map(points_of, tables))
    series = series_styles(panels)
    places = max(_places(panel) for panel in panels)
    count = len(panels)
    columns = 1 if places else 2 if count in (2, 4) else min(count, 3)
    width = max(9.0, 4.5 + 0.2 * places) if places else {1: 6.0, 2: 8.5, 3: 10.5}[columns]
    lines = -(-count // columns)
    with rc_context(STYLE):
        figure = Figure(figsize=(width, lines * (4.4 if places or count == 1 else 3.1) + 0.4), layout="constrained")
        handles: dict[str, Any] = {}
        titles = [textwrap.wrap(title_in_words(rows[0].setting), int(width / columns * 12)) for rows in tables]
        parts = figure.subfigures(lines, columns, squeeze=False).flat
        for number, (part, panel, title) in enumerate(zip(parts, panels, titles, strict=False)):
            handles = draw(part, panel, series) | handles
            # as many lines as the longest title has, so that all panels have one size
            part.axes[0].set_title("\n".join([""] * (max(map(len, titles)) - len(title)) + title))
            if number % columns == 0:
                part.axes[0].set_ylabel("BLEU")
        ordered = {name: handles[name] for name in series if name in handles}
        if ordered:
            across = max(1, int(width / (0.75 + 0.085 * max(map(len, ordered)))))
            figure.legend(ordered.values(), ordered, loc="outside lower center", ncols=min(across, len(ordered)))
        return save(figure, path)


def save(figure: Any, path: Path) -> Path:
    """Writes a figure of matplotlib in the format of the path's ending."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150, format=path.suffix.removeprefix(".") or "png")
    return path


def require_format(path: Path) -> None:
    """RecipeError if matplotlib has no format of a path's ending."""
    from matplotlib.backend_bases import FigureCanvasBase

    if path.suffix and path.suffix.removeprefix(".").lower() not in FigureCanvasBase.get_supported_filetypes():
        raise RecipeError(f"--plot {path}: there is no format '{path.suffix}' of plots: end it in .png, .pdf or .svg.")


def series_styles(panels: Sequence[Sequence[Point]]) -> dict[str, Style]:
    """The style of each series of the panels: first of curves, then of single distances, then of rows without any."""
    points = [point for panel in panels for point in panel]
    points.sort(key=lambda point: (point.distance is None, not point.is_curve))
    return styles((point.series, encoding_in(point.series, point.row.encoding)) for point in points)


def points_of(rows: Sequence[PooledRow]) -> list[Point]:
    """The points of comparable rows."""
    names = split_shared(f"{row.encoding} {re.sub(CLIPPING, '', row.flags)}".strip() for row in rows)[0]
    if len({row.setting.setup for row in rows}) > 1:
        names = [f"{row.setting.setup or ''} {name}".strip() for row, name in zip(rows, names, strict=True)]
    distances = [_distance(row) for row in rows]
    series = [(name, row.arch) for row, name in zip(rows, names, strict=True)]
    sizes = Counter(one for one, distance in zip(series, distances, strict=True) if distance is not None)
    return [
        Point(row, distance, one[0] if sizes[one] > 1 else row.shown, sizes[one] > 1)
        for row, distance, one in zip(rows, distances, series, strict=True)
    ]


def _distance(row: PooledRow) -> float | None:
    """The clipping distance that flags say, or the encoding's default; none if it has no such option."""
    from fairseq_posenc.encodings import ENCODINGS

    if match := re.search(CLIPPING, row.flags):
        return float(match[1])
    options = ENCODINGS[row.encoding].options if row.encoding in ENCODINGS else {}
    return options["clipping_distance"].default if "clipping_distance" in options else None


def _places(points: Sequence[Point]) -> int:
    """How many rows without a clipping distance have places on the x-axis."""
    others = sum(point.distance is None for point in points)
    return others if others > MOST_LINES else 0


def title_in_words(setting: Setting) -> str:
    """The corpus, languages and test set of a setting: `Multi30k, English to German, all tests`."""
    names = [language_name(code) for code in setting.pair.split("-")]
    corpus = CORPORA.get(setting.corpus, setting.corpus)
    parts = [corpus, setting.pair if None in names else " to ".join(filter(None, names))]
    return ", ".join(parts + ([] if setting.test == "test" else [setting.test.replace("_", " ")]))


def _at(distance: float) -> float:
    """The place of a clipping distance on the x-axis: 0, and its logarithm from 1 on."""
    return 0.0 if distance < 1 else 1 + math.log2(distance)


def _break_at(points: Sequence[Point]) -> float:
    """The score below which all points are so much lower than the others that the y-axis is broken between them."""
    ordered = sorted(points, key=lambda point: point.score + point.error)
    bottoms = [min(one.score - one.error for one in ordered[n:]) for n in range(len(ordered))]
    tops = [one.score + one.error for one in ordered]
    gap, number = max(((bottoms[n] - tops[n - 1], n) for n in range(1, len(ordered) - 1)), default=(0.0, 0))
    return bottoms[number] if gap > max(GAP, GAP_PART * (tops[-1] - bottoms[number])) else -math.inf


def draw(figure: Any, points: Sequence[Point], series: Mapping[str, Style]) -> dict[str, Any]:
    """Draws a panel of comparable rows, as `points_of` gives them, into a figure.

    Returns:
        The legend's handles by the names of series.
    """
    limit = _break_at(points)
    heights = [5, 1] if limit > -math.inf else [5]
    parts = list(figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0])

    def part(point: Point) -> Any:
        return parts[0] if point.score >= limit else parts[-1]

    clipped = sorted({point.distance for point in points if point.distance is not None})
    others = [point for point in points if point.distance is None]
    ticks = {_at(distance): f"{distance:g}" for distance in clipped}
    handles: dict[str, Any] = {}
    curves: dict[str, list[tuple[float, Point]]] = {}
    for distance in clipped:
        alike = [point for point in points if point.distance == distance]
        for number, point in enumerate(alike):  # beside each other, so that no point hides another
            beside = (number - (len(alike) - 1) / 2) * min(0.7 / len(alike), 0.16)
            curves.setdefault(point.series, []).append((_at(distance) + beside, point))
    for name, curve in curves.items():
        style = series[name]
        kind = {"color": style.colour, "marker": style.marker, "linestyle": style.line if len(curve) > 1 else "none"}
        for axes in parts:
            if inside := [(x, point.score, point.error) for x, point in curve if part(point) is axes]:
                handles[name] = axes.errorbar(*zip(*inside, strict=True), capsize=3, **kind)
        _connect(figure, [(x, point.score, part(point)) for x, point in curve], style)
    if _places(points):
        for number, point in enumerate(sorted(others, key=lambda one: -one.score)):
            at = max(map(_at, clipped), default=-1.5) + 1.5 + 0.6 * number
            ticks[at] = point.series
            kind = {"color": series[point.series].colour, "marker": "o", "capsize": 2}
            part(point).errorbar(at, point.score, point.error, **kind)
    else:
        for point in others:
            axes, style = part(point), series[point.series]
            axes.axhspan(point.score - point.error, point.score + point.error, color=style.colour, alpha=0.15, lw=0)
            handles[point.series] = axes.axhline(point.score, color=style.colour, linestyle=style.line, linewidth=1.8)
    _label(parts, ticks)
    if clipped:
        # below the distances, beside which encodings without one may stand
        middle = (_at(clipped[0]) + _at(clipped[-1])) / 2
        below = {"textcoords": "offset points", "ha": "center", "va": "top"}
        parts[-1].annotate("clipping distance K", (middle, 0), (0, -20), parts[-1].get_xaxis_transform(), **below)
    if len(parts) > 1:
        _break(parts[0], parts[1], statistics.fmean(point.score for point in points if point.score < limit))
    return handles


def _connect(figure: Any, curve: Sequence[tuple[float, float, Any]], style: Style) -> None:
    """Connects two points of a curve, each with its axes, across the break of the y-axis."""
    from matplotlib.patches import ConnectionPatch

    for (x, y, axes), (next_x, next_y, next_axes) in itertools.pairwise(curve):
        if axes is not next_axes:
            line = ConnectionPatch((x, y), (next_x, next_y), "data", "data", axesA=axes, axesB=next_axes)
            line.set(color=style.colour, linestyle=":", linewidth=1.2)
            line.set_in_layout(False)
            figure.add_artist(line)


def _label(parts: Sequence[Any], ticks: Mapping[float, str]) -> None:
    """Sets the ticks, the limits and the grid of the parts of a panel."""
    parts[-1].set_xticks(list(ticks), list(ticks.values()))
    if ticks:
        parts[0].set_xlim(min(ticks) - 0.5, max(ticks) + 0.5)
    for label, text in zip(parts[-1].get_xticklabels(), ticks.values(), strict=True):
        if not text.isdigit():
            label.set(rotation=90, fontsize=9)
    for axes in parts:
        axes.grid(axis="y", alpha=0.3)
        axes.margins(y=0.08)


def _break(upper: Any, lower: Any, score: float) -> None:
    """Marks that the y-axis is broken between two parts of a panel; the lower one has a tick at a score."""
    upper.spines["bottom"].set_visible(False)
    upper.tick_params(axis="x", length=0)
    lower.margins(y=0.6)
    lower.set_yticks([score], [f"{score:.1f}"])
    marks = {"marker": [(-1, -0.5), (1, 0.5)], "markersize": 9, "color": "black", "linestyle": "none", "clip_on": False}
    upper.plot([0], [0], transform=upper.transAxes, **marks)
    lower.plot([0], [1], transform=lower.transAxes, **marks)
