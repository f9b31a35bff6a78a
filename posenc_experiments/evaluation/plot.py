"""Plots BLEU against clipping distance."""

import itertools
from pathlib import Path
from typing import Any

import pandas as pd

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import atomic_path
from posenc_experiments.evaluation.metrics import BLEU
from posenc_experiments.evaluation.names import split_shared
from posenc_experiments.evaluation.pooling import groups_of, title

#: the flag of the clipping distance, with K
CLIPPING = r"--clipping-distance (\d+) ?"
#: line styles, one for each ten of matplotlib's colours, C0 to C9
LINES = ("--", ":", "-.", (0, (8, 3)), (0, (3, 1, 1, 1, 1, 1)))


def plot(rows: pd.DataFrame, path: Path) -> Path:
    """Writes a plot of BLEU against clipping distance, with one panel for each corpus, pair and test set.

    Encodings without a clipping distance are horizontal lines.

    Raises:
        RecipeError: matplotlib has no format of the file's ending.
    """
    from matplotlib.figure import Figure

    groups = groups_of(rows)
    beside = max(_legend_columns(len(group)) for group in groups)
    figure = Figure(figsize=(7 + 2 * beside, 4.5 * len(groups)), layout="constrained")
    for axes, group in zip(figure.subplots(len(groups), squeeze=False)[:, 0], groups, strict=True):
        draw(axes, group)
    return save(figure, path)


def save(figure: Any, path: Path) -> Path:
    """Writes a figure of matplotlib; RecipeError if it has no format of the file's ending."""
    try:
        with atomic_path(path) as temporary:
            figure.savefig(temporary, dpi=150, format=path.suffix.removeprefix(".") or "png")
    except ValueError as error:
        raise RecipeError(
            f"{path}: the plot cannot be written ({error}): give a path that ends in .png, .pdf or .svg."
        ) from None
    return path


def clipping_curves(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Curves of comparable rows that differ in the clipping distance only, in the order of the rows.

    Their columns `K` and `curve` are the distance, by which they are sorted, and their name.
    """
    names = rows["encoding"] + " " + rows["flags"].fillna("").str.replace(CLIPPING, "", regex=True)
    names = pd.Series(split_shared(names.str.strip())[0], names.index)
    if rows["setup"].nunique(dropna=False) > 1:
        names = rows["setup"].fillna("") + " " + names
    clipped = rows.assign(K=rows["flags"].str.extract(CLIPPING, expand=False), curve=names.str.strip())
    clipped = clipped.dropna(subset="K").astype({"K": int})
    curves = [curve.sort_values("K", kind="stable") for _, curve in clipped.groupby(["curve", "arch"], sort=False)]
    return [curve for curve in curves if len(curve) > 1]


def draw(axes: Any, rows: pd.DataFrame) -> None:
    """Draws comparable rows into matplotlib's axes; the legend keeps their order."""
    curves, numbers = clipping_curves(rows), itertools.count()
    shown: dict[int, Any] = {}  # curves and lines for the legend, by the number of their first row
    spread, interval = (rows[f"{BLEU} {what}"] for what in ("spread", "interval"))
    errors = spread.where(spread.notna(), interval).astype(float).fillna(0.0)
    for curve in curves:
        style = {"marker": "o", "capsize": 3, "color": f"C{next(numbers)}", "label": curve["curve"].iloc[0]}
        ys = curve[BLEU].astype(float)
        shown[min(curve.index)] = axes.errorbar(curve["K"], ys, yerr=errors[curve.index], **style)
    for number in rows.index.difference([number for curve in curves for number in curve.index]):
        line, colour = divmod(next(numbers), 10)
        style = {"linestyle": LINES[line % len(LINES)], "color": f"C{colour}"}
        shown[number] = axes.axhline(rows[BLEU][number], label=rows["shown"][number], **style)
    axes.set_xticks([])
    if distances := sorted({int(distance) for curve in curves for distance in curve["K"]}):
        axes.set_xscale("symlog", base=2, linthresh=1)
        axes.set_xticks(distances, [str(distance) for distance in distances])
        axes.set_xticks([], minor=True)
        # By itself matplotlib leaves much room beside 0 and none beside the largest distance.
        least, most = distances[0], distances[-1]
        axes.set_xlim(least / 1.4 if least > 1 else least - 0.4, max(most * 1.4, 0.4))
    axes.set_xlabel("clipping distance K")
    axes.set_ylabel("BLEU")
    axes.set_title(title(rows), wrap=True)
    axes.grid(alpha=0.3)
    columns = _legend_columns(len(rows))
    beside = {"loc": "upper left", "bbox_to_anchor": (1, 1), "fontsize": "small", "ncols": columns} if columns else {}
    axes.legend(handles=[shown[number] for number in sorted(shown)], **beside)


def _legend_columns(rows: int) -> int:
    """The columns of a legend beside the axes, which a long one would cover; 0 for one within them."""
    return 0 if rows <= 12 else -(-rows // 20)
