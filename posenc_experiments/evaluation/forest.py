"""Draws differences from a baseline as a forest plot: a point with its intervals for each comparison."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.evaluation.plot import STYLE, save, title_in_words
from posenc_experiments.evaluation.results import GROUP
from posenc_experiments.evaluation.significance import ABOVE, BELOW, EQUIVALENT, UNDECIDED

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


def draw_forest(groups: Sequence[pd.DataFrame], path: Path) -> Path:
    """Writes a plot of differences, with a panel for each group of comparisons.

    Args:
        groups: rows that `compared` or `answered` made; a column `panel` has the panel's title.

    Raises:
        RecipeError: there is no difference.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    known = [rows[rows["difference"].notna()] for rows in groups if len(rows)]
    drawn = [rows for rows in known if len(rows)]
    if not drawn:
        raise RecipeError("--plot: there is no difference to draw: name a --baseline that other rows differ from.")
    heights = [AROUND + ROW * sum(1 + name.count("\n") for name in _names(rows)) for rows in drawn]
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, sum(heights) + 0.4), layout="constrained")
        panels = figure.subplots(len(drawn), squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
        for axes, rows in zip(panels, drawn, strict=True):
            draw(axes, rows)
        figure.legend(handles=_legend(drawn), loc="outside lower center", ncols=3, frameon=False)
        return save(figure, path)


def draw(axes: Any, rows: pd.DataFrame) -> None:
    """Draws comparisons into matplotlib's axes: for each baseline in its order, the highest difference first."""
    order = list(dict.fromkeys(rows["baseline"]))
    places = rows["baseline"].map(lambda name: -order.index(name))
    rows = rows.assign(place=places).sort_values(["place", "difference"], kind="stable").reset_index(drop=True)
    low, high = limits(rows)
    test = rows["comparison"][0]
    if test.margin is not None:
        axes.axvspan(-test.margin, test.margin, linewidth=0, **MARGIN)
    axes.axvline(0, color="black", linewidth=0.8)
    for place, row in rows.iterrows():
        word = row["verdict"] or ""
        colour, marker, filled = STYLES[_kind(word)]
        if not low <= row["difference"] <= high:
            edge, side = (low, "<") if row["difference"] < low else (high, ">")
            axes.plot(edge + (0.02 * (high - low) if side == "<" else 0), place, marker=side, color=colour)
        else:
            for kind, width in (("verdict", 1), ("difference", 3)):
                if row[f"{kind}_low"] is not None:
                    ends = [row[f"{kind}_low"], row[f"{kind}_high"]]
                    axes.plot(ends, [place] * 2, color=colour, linewidth=width, solid_capstyle="butt")
            face = colour if filled else "white"
            axes.plot(row["difference"], place, marker=marker, color=colour, markerfacecolor=face, markersize=6.5)
        said = word or ("one seed" if row["p_value"] is None else "no verdict")
        axes.text(1.01, place, f"{row['difference']:+.2f}  {said}", transform=axes.get_yaxis_transform(), va="center")
    axes.set_xlim(low, high)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_yticks(range(len(rows)), _names(rows), parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    of_baseline = "" if order[1:] else f" from {order[0]}"
    axes.set_xlabel(_short(f"difference in {test.metric}{of_baseline}"), parse_math=False)
    heading = rows["panel"][0].replace("`", "") if "panel" in rows else title_in_words(rows)
    axes.set_title(textwrap.fill(heading, TITLE), loc="left", parse_math=False)


def _names(rows: pd.DataFrame) -> list[str]:
    """The labels of comparisons, with baseline and table where these differ, in lines that are not too long."""
    names = rows["shown"]
    if rows["baseline"].nunique() > 1:
        names = names + " − " + rows["baseline"]
    different = [key for key in GROUP if rows[key].nunique() > 1]
    return [_short(", ".join(name)) for name in zip(names, *(rows[key] for key in different), strict=True)]


def limits(rows: pd.DataFrame) -> tuple[float, float]:
    """The ends of the axis: those of all intervals, unless few differences would take more than half of it."""
    kinds = [f"{kind}_{end}" for kind in ("difference", "verdict") for end in ("low", "high")]
    ends = rows[["difference", *kinds]].astype(float)
    values = ends["difference"]
    first, third = values.quantile(0.25), values.quantile(0.75)
    near = ends[values.between(first - 3 * (third - first), third + 3 * (third - first))]
    (low, high), (least, most) = ((min(one.min().min(), 0.0), max(one.max().max(), 0.0)) for one in (near, ends))
    if most - least < 2.5 * (high - low):
        low, high = least, most
    room = 0.06 * (high - low)
    return low - room, high + room


def _kind(verdict: str) -> str:
    """The key in STYLES of a verdict, which may also say what it would be alone."""
    return verdict if verdict in STYLES else UNDECIDED


def _short(name: str) -> str:
    """A name in lines that are not too long."""
    return "\n".join(textwrap.wrap(name, NAME, break_long_words=False, break_on_hyphens=False))


def _legend(groups: Sequence[pd.DataFrame]) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    words = {_kind(word) for rows in groups for word in rows["verdict"].dropna()}
    handles: list[Any] = [
        Line2D([], [], color=colour, marker=marker, markerfacecolor=colour if filled else "white", label=word)
        for word, (colour, marker, filled) in STYLES.items()
        if word in words
    ]
    if any(rows["verdict"].isna().any() for rows in groups):
        colour, marker, _ = STYLES[""]
        label = "in no question, or one seed"
        handles.append(Line2D([], [], color=colour, marker=marker, markerfacecolor="white", linestyle="", label=label))
    handles.append(Line2D([], [], color="black", linewidth=3, label="95 % interval, by itself"))
    if words:
        handles.append(Line2D([], [], color="black", linewidth=1, label="the interval that decides"))
    margins = {test.margin for rows in groups for test in rows["comparison"]} - {None}
    handles += [Patch(**MARGIN, label=f"less than {margin:g} apart") for margin in margins]
    return handles
