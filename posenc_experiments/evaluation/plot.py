"""Plots BLEU against clipping distance."""

import itertools
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import atomic_path
from posenc_experiments.evaluation.pooling import Row, comparable_groups, shared_flags, shown_names, title

#: line styles, one for each ten of matplotlib's colours, C0 to C9
LINES = ("--", ":", "-.", (0, (8, 3)), (0, (3, 1, 1, 1, 1, 1)))


def plot(rows: Sequence[Row], path: Path) -> Path:
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


def clipping_curves(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Curves of comparable rows that differ in the clipping distance only, each with a name, sorted by the distance."""
    curves: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    same = {"clipping-distance", *(flag.split()[0].removeprefix("--") for flag in shared_flags(rows))}
    for row in rows:
        if row.clipping_distance is not None:
            other = {name: value for name, value in row.first.flags.items() if name not in same}
            curves[(row.first.setup or "", row.first.arch, json.dumps(other, sort_keys=True))].append(row)
    longest = max((len(curve) for curve in curves.values()), default=0)
    # A single distance is a horizontal line, unless no encoding has more than one.
    drawn = {key: curve for key, curve in curves.items() if len(curve) > 1 or longest == 1}
    labelled = []
    for (setup, arch, rest), curve in drawn.items():
        words = [
            *([setup] if setup and len({row.first.setup for row in rows}) > 1 else []),
            curve[0].first.encoding,
            *([rest] if sum(key[:2] == (setup, arch) for key in drawn) > 1 else []),
        ]
        labelled.append((" ".join(words), sorted(curve, key=lambda row: row.clipping_distance or 0)))
    return labelled


def draw(axes: Any, rows: list[Row]) -> None:
    """Draws comparable rows into matplotlib's axes; the legend keeps their order."""
    names = dict(zip(map(id, rows), shown_names(rows), strict=True))
    drawn = clipping_curves(rows)
    numbers = itertools.count()
    distances: set[int] = set()
    shown: dict[int, Any] = {}  # curves and lines for the legend, by the id of their first row
    for label, curve in drawn:
        first = next(row for row in rows if row in curve)
        distances.update(row.clipping_distance or 0 for row in curve)
        errors = [row.bleu.error or 0.0 for row in curve]
        xs, ys = [row.clipping_distance for row in curve], [row.bleu.mean for row in curve]
        shown[id(first)] = axes.errorbar(
            xs, ys, yerr=errors, marker="o", capsize=3, color=f"C{next(numbers)}", label=label
        )
    in_curves = [row for _, curve in drawn for row in curve]
    for row in rows:
        if row not in in_curves:
            line, colour = divmod(next(numbers), 10)
            style = {"linestyle": LINES[line % len(LINES)], "color": f"C{colour}"}
            shown[id(row)] = axes.axhline(row.bleu.mean, label=names[id(row)], **style)
    if distances:
        axes.set_xscale("symlog", base=2, linthresh=1)
        axes.set_xticks(sorted(distances), [str(distance) for distance in sorted(distances)])
        axes.set_xticks([], minor=True)
        # By itself matplotlib leaves much room beside 0 and none beside the largest distance.
        least, most = min(distances), max(distances)
        axes.set_xlim(least / 1.4 if least > 1 else least - 0.4, max(most * 1.4, 0.4))
    else:
        axes.set_xticks([])
    axes.set_xlabel("clipping distance K")
    axes.set_ylabel("BLEU")
    axes.set_title(title(rows), wrap=True)
    axes.grid(alpha=0.3)
    handles = [shown[id(row)] for row in rows if id(row) in shown]
    if columns := _legend_columns(len(rows)):
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), fontsize="small", ncols=columns)
    else:
        axes.legend(handles=handles)


def _legend_columns(rows: int) -> int:
    """The columns of a legend beside the axes, which a long one would cover; 0 for one within them."""
    return 0 if rows <= 12 else -(-rows // 20)
