"""Plots BLEU against clipping distance."""

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import atomic_path
from posenc_experiments.base.languages import language_name
from posenc_experiments.evaluation.colours import Style, encoding_in, styles
from posenc_experiments.evaluation.metrics import BLEU
from posenc_experiments.evaluation.names import split_shared
from posenc_experiments.evaluation.pooling import groups_of

#: the flag of the clipping distance, with K
CLIPPING = r"--clipping-distance (\d+) ?"
#: names of corpora in titles; others stay as they are
CORPORA = {"kftt": "KFTT", "multi30k": "Multi30k", "quickstart": "Quickstart", "wmt14": "WMT14", "wmt18": "WMT18"}
#: with more encodings without a clipping distance, each has a place on the x-axis instead of a horizontal line
MOST_LINES = 5
#: the y-axis is broken where its largest gap has so many points, and is so large a part of the range above it
GAP, GAP_PART = 2.0, 0.5
STYLE: dict[Any, Any] = {
    **{"font.size": 10, "axes.titlesize": 10, "lines.markersize": 5, "legend.frameon": False},
    **{"axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "fairseq_posenc"},
}


def plot(rows: pd.DataFrame, path: Path) -> Path:
    """Writes a plot of BLEU against clipping distance, with one panel for each corpus, pair and test set.

    Encodings without a clipping distance are horizontal lines or, if they are many, points beside the curves.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    panels = [with_series(group) for group in groups_of(rows)]
    series = series_styles(panels)
    places = max(_places(panel) for panel in panels)
    count = len(panels)
    columns = 1 if places else 2 if count in (2, 4) else min(count, 3)
    width = max(9.0, 4.5 + 0.2 * places) if places else {1: 6.0, 2: 8.5, 3: 10.5}[columns]
    lines = -(-count // columns)
    with rc_context(STYLE):
        figure = Figure(figsize=(width, lines * (4.4 if places or count == 1 else 3.1) + 0.4), layout="constrained")
        handles: dict[str, Any] = {}
        titles = [textwrap.wrap(title_in_words(panel), int(width / columns * 12)) for panel in panels]
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


def series_styles(panels: Sequence[pd.DataFrame]) -> dict[str, Style]:
    """The style of each series of the panels: first of curves, then of single distances, then of rows without any."""
    shown = pd.concat(panels, ignore_index=True)
    order = (shown["K"].isna() * 2 + ~shown["is_curve"]).sort_values(kind="stable").index
    names = [(row["series"], row["encoding"]) for _, row in shown.iloc[list(order)].iterrows()]
    return styles((name, encoding_in(name, encoding)) for name, encoding in names)


def with_series(rows: pd.DataFrame) -> pd.DataFrame:
    """Comparable rows with the columns K (the clipping distance, or none), series (its name in the legend), is_curve
    (whether the series has several distances), score and error.

    Rows that differ in the clipping distance only are one series.
    """
    flags = rows["flags"].fillna("")
    names = (rows["encoding"] + " " + flags.str.replace(CLIPPING, "", regex=True)).str.strip()
    names = pd.Series(split_shared(names)[0], rows.index)
    if rows["setup"].nunique(dropna=False) > 1:
        names = (rows["setup"].fillna("") + " " + names).str.strip()
    distances = flags.str.extract(CLIPPING, expand=False).astype(float)
    distances = distances.where(distances.notna(), rows["encoding"].map(_default_distance).astype(float))
    alike = distances.groupby([names, rows["arch"]]).transform("count") > 1
    spread, interval = (rows[f"{BLEU} {what}"] for what in ("spread", "interval"))
    return rows.assign(
        K=distances,
        series=names.where(alike, rows["shown"]),
        is_curve=alike,
        error=spread.where(spread.notna(), interval).astype(float).fillna(0.0),
        score=rows[BLEU].astype(float),
    )


def _default_distance(encoding: str) -> float | None:
    """The clipping distance of an encoding without the flag; none if it has no such option."""
    from fairseq_posenc.encodings import ENCODINGS

    options = ENCODINGS[encoding].options if encoding in ENCODINGS else {}
    return options["clipping_distance"].default if "clipping_distance" in options else None


def _places(rows: pd.DataFrame) -> int:
    """How many rows without a clipping distance have places on the x-axis."""
    others = int(rows["K"].isna().sum())
    return others if others > MOST_LINES else 0


def title_in_words(rows: pd.DataFrame) -> str:
    """The corpus, languages and test set of comparable rows: `Multi30k, English to German, all tests`."""
    corpus, pair, test = rows[["corpus", "pair", "test"]].iloc[0]
    names = [language_name(code) for code in pair.split("-")]
    parts = [CORPORA.get(corpus, corpus), pair if None in names else " to ".join(filter(None, names))]
    return ", ".join(parts + ([] if test == "test" else [test.replace("_", " ")]))


def _at(distance: float) -> float:
    """The place of a clipping distance on the x-axis: 0, and its logarithm from 1 on."""
    return 0.0 if distance < 1 else 1 + math.log2(distance)


def _lowest(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Which rows score so much lower than all others that the y-axis is broken between them."""
    tops = (rows["score"] + rows["error"]).sort_values()
    bottoms = (rows["score"] - rows["error"])[tops.index]
    gaps = [(bottoms.iloc[n:].min() - tops.iloc[n - 1], n) for n in range(1, len(tops) - 1)]
    gap, number = max(gaps, default=(0.0, 0))
    upper = tops.index[number:]
    is_wide = gap > max(GAP, GAP_PART * (tops[upper].max() - bottoms[upper].min()))
    return pd.Series(is_wide & ~rows.index.isin(upper), rows.index)


def draw(figure: Any, rows: pd.DataFrame, series: Mapping[str, Style]) -> dict[str, Any]:
    """Draws a panel of comparable rows, as `with_series` gives them, into a figure.

    Returns:
        The legend's handles by the names of series.
    """
    rows = rows.assign(low=_lowest(rows).astype(int))  # the part of the panel: 0 above the break, 1 below it
    heights = [5, 1][: rows["low"].max() + 1]
    parts = list(figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0])
    clipped, others = rows[rows["K"].notna()], rows[rows["K"].isna()]
    ticks = {_at(distance): f"{distance:g}" for distance in sorted(set(clipped["K"]))}
    handles: dict[str, Any] = {}
    # beside each other, so that no point hides another
    number, alike = clipped.groupby("K").cumcount(), clipped.groupby("K")["K"].transform("count")
    clipped = clipped.assign(x=clipped["K"].map(_at) + (number - (alike - 1) / 2) * (0.7 / alike).clip(upper=0.16))
    for name, curve in clipped.sort_values("K", kind="stable").groupby("series", sort=False):
        style = series[name]
        kind = {"color": style.colour, "marker": style.marker, "linestyle": style.line if len(curve) > 1 else "none"}
        for low, points in curve.groupby("low"):
            handles[name] = parts[low].errorbar(points["x"], points["score"], points["error"], capsize=3, **kind)
        _connect(figure, parts, curve, style)
    if _places(rows):
        for number, (_, row) in enumerate(others.sort_values("score", ascending=False, kind="stable").iterrows()):
            at = max(map(_at, clipped["K"]), default=-1.5) + 1.5 + 0.6 * number
            ticks[at] = row["series"]
            kind = {"color": series[row["series"]].colour, "marker": "o", "capsize": 2}
            parts[row["low"]].errorbar(at, row["score"], row["error"], **kind)
    else:
        for _, row in others.iterrows():
            axes, style = parts[row["low"]], series[row["series"]]
            axes.axhspan(row["score"] - row["error"], row["score"] + row["error"], color=style.colour, alpha=0.15, lw=0)
            handles[row["series"]] = axes.axhline(row["score"], color=style.colour, linestyle=style.line, linewidth=1.8)
    _label(parts, ticks)
    if len(clipped):
        # below the distances, beside which encodings without one may stand
        middle = sum(map(_at, (clipped["K"].min(), clipped["K"].max()))) / 2
        below = {"textcoords": "offset points", "ha": "center", "va": "top"}
        parts[-1].annotate("clipping distance K", (middle, 0), (0, -20), parts[-1].get_xaxis_transform(), **below)
    if len(parts) > 1:
        _break(parts[0], parts[1], rows["score"][rows["low"] == 1].mean())
    return handles


def _connect(figure: Any, parts: Sequence[Any], curve: pd.DataFrame, style: Style) -> None:
    """Connects two points of a curve across the break of the y-axis."""
    from matplotlib.patches import ConnectionPatch

    points = list(zip(curve["x"], curve["score"], curve["low"], strict=True))
    for (x, y, low), (next_x, next_y, next_low) in itertools.pairwise(points):
        if low != next_low:
            ends = {"axesA": parts[low], "axesB": parts[next_low]}
            line = ConnectionPatch((x, y), (next_x, next_y), "data", "data", **ends)
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
