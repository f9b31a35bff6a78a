"""Plots BLEU against clipping distance."""

import itertools
from pathlib import Path
from typing import Any

import pandas as pd

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import atomic_path
from posenc_experiments.evaluation.metrics import BLEU
from posenc_experiments.evaluation.pooling import comparable_groups, row_names, shared_flags, title, words_of

CLIPPING = "--clipping-distance"
#: line styles, one for each ten of matplotlib's colours, C0 to C9
LINES = ("--", ":", "-.", (0, (8, 3)), (0, (3, 1, 1, 1, 1, 1)))


def plot(rows: pd.DataFrame, path: Path) -> Path:
    """Writes a plot of BLEU against clipping distance, with one panel for each corpus, pair and test set.

    Encodings without a clipping distance are horizontal lines.

    Raises:
        RecipeError: matplotlib has no format of the file's ending.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = comparable_groups(rows)
    beside = max(_legend_columns(len(group)) for group in groups)
    figure = Figure(figsize=(7 + 2 * beside, 4.5 * len(groups)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, group in zip(figure.subplots(len(groups), squeeze=False)[:, 0], groups, strict=True):
        draw(axes, group)
    try:
        with atomic_path(path) as temporary:
            figure.savefig(temporary, dpi=150, format=path.suffix.removeprefix(".") or "png")
    except ValueError as error:
        raise RecipeError(
            f"{path}: the plot cannot be written ({error}): give a path that ends in .png, .pdf or .svg."
        ) from None
    return path


def clipping_curves(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Curves of comparable rows that differ in the clipping distance only, by their names, sorted by the distance `K`.

    A single distance is no curve, unless no encoding has more than one.
    """
    flags = [words_of(one) for one in rows["flags"]]
    distances = [next((int(flag.split()[1]) for flag in own if flag.startswith(CLIPPING)), None) for own in flags]
    same = {CLIPPING, *(flag.split()[0] for flag in shared_flags(rows))}
    rest = [" ".join(flag for flag in own if flag and flag.split()[0] not in same) for own in flags]
    setup = rows["setup"].map(lambda one: one or "") if rows["setup"].nunique(dropna=False) > 1 else ""
    clipped = rows.assign(K=distances, setup=setup, rest=rest).dropna(subset="K").sort_values("K", kind="stable")
    curves = dict(iter(clipped.groupby(["setup", "arch", "rest"], sort=False)))
    longest = max(map(len, curves.values()), default=0)
    drawn = {key: curve for key, curve in curves.items() if len(curve) > 1 or longest == 1}
    names = {
        (setup, arch, rest): [
            setup,
            curve["encoding"].iloc[0],
            rest if sum(key[:2] == (setup, arch) for key in drawn) > 1 else "",
        ]
        for (setup, arch, rest), curve in drawn.items()
    }
    # In the order of the rows.
    return {
        " ".join(filter(None, names[key])): drawn[key] for key in sorted(drawn, key=lambda one: min(drawn[one].index))
    }


def draw(axes: Any, rows: pd.DataFrame) -> None:
    """Draws comparable rows into matplotlib's axes; the legend keeps their order."""
    names, curves, numbers = row_names(rows), clipping_curves(rows), itertools.count()
    shown: dict[int, Any] = {}  # curves and lines for the legend, by the number of their first row
    spread, interval = (rows[f"{BLEU} {what}"] for what in ("spread", "interval"))
    errors = spread.where(spread.notna(), interval).astype(float).fillna(0.0)
    for label, curve in curves.items():
        style = {"marker": "o", "capsize": 3, "color": f"C{next(numbers)}", "label": label}
        ys = curve[BLEU].astype(float)
        shown[min(curve.index)] = axes.errorbar(curve["K"], ys, yerr=errors[curve.index], **style)
    in_curves = {number for curve in curves.values() for number in curve.index}
    for number in range(len(rows)):
        if number not in in_curves:
            line, colour = divmod(next(numbers), 10)
            style = {"linestyle": LINES[line % len(LINES)], "color": f"C{colour}"}
            shown[number] = axes.axhline(rows[BLEU][number], label=names[number], **style)
    if distances := sorted({int(distance) for curve in curves.values() for distance in curve["K"]}):
        axes.set_xscale("symlog", base=2, linthresh=1)
        axes.set_xticks(distances, [str(distance) for distance in distances])
        axes.set_xticks([], minor=True)
        # By itself matplotlib leaves much room beside 0 and none beside the largest distance.
        least, most = distances[0], distances[-1]
        axes.set_xlim(least / 1.4 if least > 1 else least - 0.4, max(most * 1.4, 0.4))
    else:
        axes.set_xticks([])
    axes.set_xlabel("clipping distance K")
    axes.set_ylabel("BLEU")
    axes.set_title(title(rows), wrap=True)
    axes.grid(alpha=0.3)
    handles = [shown[number] for number in sorted(shown)]
    if columns := _legend_columns(len(rows)):
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), fontsize="small", ncols=columns)
    else:
        axes.legend(handles=handles)


def _legend_columns(rows: int) -> int:
    """The columns of a legend beside the axes, which a long one would cover; 0 for one within them."""
    return 0 if rows <= 12 else -(-rows // 20)
