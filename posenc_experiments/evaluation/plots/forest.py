"""Draws differences from a baseline as a forest plot: a point with its intervals for each comparison."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.evaluation.plots.clipping import STYLE, save
from posenc_experiments.evaluation.results import GROUP
from posenc_experiments.evaluation.statistics.comparison import ComparedRow, ComparedTable
from posenc_experiments.evaluation.statistics.significance import ABOVE, BELOW, EQUIVALENT, UNDECIDED

#: colour, marker, and whether it is filled, of each verdict; in print the marker tells
STYLES = {
    ABOVE: ("#0072b2", "^", True),
    BELOW: ("#d55e00", "v", True),
    EQUIVALENT: ("#009e73", "s", True),
    UNDECIDED: ("#666666", "o", False),
    "": ("#666666", "D", False),
}
WIDTH, ROW, AROUND = 8.0, 0.25, 1.2  # inches: of the figure, of a line, and of what is above and below the rows
MARGIN: dict[str, Any] = {"color": STYLES[EQUIVALENT][0], "alpha": 0.12}  # the band of differences that do not matter
NAME, TITLE = 34, 80  # the longest lines of names and of titles


#: a title, and tables that are compared in one way
Panel = tuple[str, Sequence[ComparedTable]]


def _rows(tables: Sequence[ComparedTable]) -> list[ComparedRow]:
    """The rows with a difference, from below: by baseline, the highest difference last."""
    rows = [row for table in tables for row in table.rows if row.difference is not None]
    order = list(dict.fromkeys(row.baseline_name for row in rows))
    return sorted(rows, key=lambda row: (-order.index(row.baseline_name), row.difference))


def draw_forest(panels: Sequence[Panel], path: Path) -> Path:
    """Writes a plot of differences.

    Raises:
        RecipeError: there is no difference.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    drawn = [(title, tables) for title, tables in panels if _rows(tables)]
    if not drawn:
        raise RecipeError("--plot: there is no difference to draw: name a --baseline that other rows differ from.")
    heights = [AROUND + ROW * sum(1 + name.count("\n") for name in _names(_rows(tables))) for _, tables in drawn]
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, sum(heights) + 0.4), layout="constrained")
        parts = figure.subplots(len(drawn), squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
        for axes, panel in zip(parts, drawn, strict=True):
            draw(axes, *panel)
        figure.legend(handles=_legend(drawn), loc="outside lower center", ncols=3, frameon=False)
        return save(figure, path)


def draw(axes: Any, title: str, tables: Sequence[ComparedTable]) -> None:
    """Draws comparisons into matplotlib's axes."""
    rows, how = _rows(tables), tables[0].how
    low, high = limits(rows)
    if how.margin is not None:
        axes.axvspan(-how.margin, how.margin, linewidth=0, **MARGIN)
    axes.axvline(0, color="black", linewidth=0.8)
    for place, row in enumerate(rows):
        word = row.verdict or ""
        colour, marker, filled = STYLES[_kind(word)]
        value = row.difference or 0.0
        if not low <= value <= high:
            edge, side = (low, "<") if value < low else (high, ">")
            axes.plot(edge + (0.02 * (high - low) if side == "<" else 0), place, marker=side, color=colour)
        else:
            intervals = ((row.verdict_low, row.verdict_high), (row.difference_low, row.difference_high))
            for ends, width in zip(intervals, (1, 3), strict=True):
                if ends[0] is not None:
                    axes.plot(ends, [place] * 2, color=colour, linewidth=width, solid_capstyle="butt")
            face = colour if filled else "white"
            axes.plot(value, place, marker=marker, color=colour, markerfacecolor=face, markersize=6.5)
        said = word or ("one seed" if row.p_value is None else "no verdict")
        axes.text(1.01, place, f"{value:+.2f}  {said}", transform=axes.get_yaxis_transform(), va="center")
    axes.set_xlim(low, high)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_yticks(range(len(rows)), _names(rows), parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    baselines = {row.baseline_name for row in rows}
    from_one = "" if len(baselines) > 1 else f" from {baselines.pop()}"
    axes.set_xlabel(_short(f"difference in {how.metric}{from_one}"), parse_math=False)
    axes.set_title(textwrap.fill(title.replace("`", ""), TITLE), loc="left", parse_math=False)


def _names(rows: Sequence[ComparedRow]) -> list[str]:
    """The labels of comparisons, with baseline and table where these differ, in lines that are not too long."""
    several = len({row.baseline_name for row in rows}) > 1
    different = [key for key in GROUP if len({getattr(row.row.setting, key) for row in rows}) > 1]
    return [
        _short(", ".join([row.row.shown + f" − {row.baseline_name}" * several, *places]))
        for row in rows
        for places in [[getattr(row.row.setting, key) for key in different]]
    ]


def limits(rows: Sequence[ComparedRow]) -> tuple[float, float]:
    """The ends of the axis: those of all intervals, unless few differences would take more than half of it."""
    kinds = ("difference", "difference_low", "difference_high", "verdict_low", "verdict_high")
    ends = np.array([[getattr(row, kind) for kind in kinds] for row in rows], dtype=float)  # None becomes NaN
    first, third = np.quantile(ends[:, 0], [0.25, 0.75])
    far = 3 * (third - first)
    near = ends[(first - far <= ends[:, 0]) & (ends[:, 0] <= third + far)]
    (low, high), (least, most) = ((min(np.nanmin(one), 0.0), max(np.nanmax(one), 0.0)) for one in (near, ends))
    if most - least < 2.5 * (high - low):
        low, high = least, most
    room = 0.06 * (high - low)
    return float(low - room), float(high + room)


def _kind(verdict: str) -> str:
    """The key in STYLES of a verdict, which may also say what it would be alone."""
    return verdict if verdict in STYLES else UNDECIDED


def _short(name: str) -> str:
    """A name in lines that are not too long."""
    return "\n".join(textwrap.wrap(name, NAME, break_long_words=False, break_on_hyphens=False))


def _legend(panels: Sequence[Panel]) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    verdicts = [row.verdict for _, tables in panels for row in _rows(tables)]
    words = {_kind(word) for word in verdicts if word}
    handles: list[Any] = [
        Line2D([], [], color=colour, marker=marker, markerfacecolor=colour if filled else "white", label=word)
        for word, (colour, marker, filled) in STYLES.items()
        if word in words
    ]
    if None in verdicts:
        colour, marker, _ = STYLES[""]
        label = "in no question, or one seed"
        handles.append(Line2D([], [], color=colour, marker=marker, markerfacecolor="white", linestyle="", label=label))
    handles.append(Line2D([], [], color="black", linewidth=3, label="95 % interval, by itself"))
    if words:
        handles.append(Line2D([], [], color="black", linewidth=1, label="the interval that decides"))
    margins = {tables[0].how.margin for _, tables in panels} - {None}
    handles += [Patch(**MARGIN, label=f"less than {margin:g} apart") for margin in margins]
    return handles
