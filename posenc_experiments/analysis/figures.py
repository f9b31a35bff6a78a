"""What the page's figures have in common, and those of scores: by source length, by clipping distance, by update."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from markupsafe import Markup

from posenc_experiments.analysis import svg
from posenc_experiments.analysis.record import Record
from posenc_experiments.analysis.svg import COLOURS, Line, chart, style
from posenc_experiments.analysis.texts import METRICS, RESAMPLES
from posenc_experiments.evaluation.metrics import BLEU
from posenc_experiments.evaluation.plot import clipping_curves
from posenc_experiments.evaluation.pooling import Row

T = TypeVar("T")


@dataclass(frozen=True)
class Panel:
    """One drawing of a figure; those of one group stand together under its name."""

    title: str
    drawing: Markup
    group: str = ""


@dataclass(frozen=True)
class Grid:
    """The table behind a figure."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """Drawings with what a reader must know of them."""

    key: str  # its place in the page's addresses
    title: str
    definition: str
    source: str  # the paper that it comes from
    sample: str  # what it was measured on
    panels: Sequence[Panel]
    table: Grid
    legend: Sequence[str] = ()  # names of the lines, in the order of their colours
    scale: Markup | None = None

    @property
    def groups(self) -> list[tuple[str, list[Panel]]]:
        """The panels by their groups, in their order."""
        found: dict[str, list[Panel]] = {}
        for panel in self.panels:
            found.setdefault(panel.group, []).append(panel)
        return list(found.items())


def cell(value: float | None, form: str = ".3g") -> str:
    """A number of a table."""
    return "–" if value is None else format(value, form)


def pooled(values: Iterable[float | None]) -> float | None:
    """The mean over the seeds that have a value."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def first_of(found: Iterable[T | None]) -> T | None:
    """The first item that is not empty; None if there is none."""
    return next((one for one in found if one), None)


def line_panels(
    names: Sequence[str], lines: Sequence[Line], title: str, x_label: str, y_label: str, **more: Any
) -> list[Panel]:
    """All lines in one panel or, if there are more lines than colours, a panel for each, drawn over the others."""
    if len(lines) <= COLOURS:
        return [Panel(title, chart(lines, f"{title}: {', '.join(names)}", x_label, y_label, **more))]
    panels = []
    for line in lines:
        others = [Line(other.name, other.points, "other") for other in lines if other is not line]
        mine = Line(line.name, line.points, style(0), line.intervals, line.hollow)
        alt = f"{title}: {line.name} over the other {len(others)}"
        panels.append(Panel(f"{title}: {line.name}", chart([*others, mine], alt, x_label, y_label, **more)))
    return panels


def legend(names: Sequence[str]) -> Sequence[str]:
    """The names where lines share a panel."""
    return names if len(names) <= COLOURS else ()


def length_figures(names: Sequence[str], texts: dict[int, list[Record]]) -> list[Figure]:
    """Scores by source length; `texts` has what was found of each seed of a row, by the row's number."""
    first = texts[0][0]["by_length"]
    unit = texts[0][0]["length_unit"].removeprefix("source ")
    labels = [f"{one['from']}–{one['to']}" if one["from"] < one["to"] else str(one["from"]) for one in first]
    lines: dict[str, list[Line]] = {metric: [] for metric in METRICS}
    grid: list[list[str]] = []
    for number, name in enumerate(names):
        seeds = [one["by_length"] for one in texts[number]]
        longer = [pooled(seed[at]["longer"] for seed in seeds) for at in range(len(first))]
        hollow = frozenset(at for at, count in enumerate(longer) if count)
        means = {
            metric: [
                [statistics.fmean(seed[at][metric][k] for seed in seeds) for k in range(3)] for at in range(len(first))
            ]
            for metric in METRICS
        }
        for metric in METRICS:
            points = [(float(at), three[0]) for at, three in enumerate(means[metric])]
            ends = [(three[1], three[2]) for three in means[metric]]
            # Beside each other, so that intervals do not hide each other.
            shift = 0.06 * (number - (len(names) - 1) / 2) if len(names) <= COLOURS else 0.0
            moved = [(x + shift, y) for x, y in points]
            lines[metric].append(Line(name, moved, style(number), ends, hollow))
        for at, label in enumerate(labels):
            scores = [
                f"{cell(three[0], '.2f')} [{cell(three[1], '.2f')}, {cell(three[2], '.2f')}]"
                for three in (means[m][at] for m in METRICS)
            ]
            grid.append([name, label, str(first[at]["sentences"]), cell(longer[at], ".0f"), *scores])
    categories = [(float(at), label) for at, label in enumerate(labels)]
    panels = [
        panel
        for metric in METRICS
        for panel in line_panels(names, lines[metric], metric, f"{unit} of the source", metric, categories=categories)
    ]
    return [
        Figure(
            "by-length",
            "Scores by source length",
            "BLEU and chrF as SacreBLEU computes them over the sentences of each bucket; RIBES: Kendall's tau of the "
            "order of aligned words, times precision to the power 0.25 and brevity penalty to the power 0.1, the mean "
            "over sentences; length ratio: words of the translations by words of the references, as BLEU cuts them. "
            "Bars: 95 % intervals "
            f"of {RESAMPLES:,} bootstrap samples of the bucket's sentences; "
            "of several seeds, scores and ends are means. "
            "Hollow marks: some of the bucket's sentences are longer than all of the training: their sources have more "
            f"{unit} than train-max-words or, where that is not set, more tokens than any training source.",
            "Rosendahl et al. 2019; Neishi and Yoshinaga 2019; Variš and Bojar 2021; RIBES: Isozaki et al. 2010",
            f"{texts[0][0]['sentences']:,} sentences in buckets of {', '.join(str(one['sentences']) for one in first)}",
            panels,
            Grid(["experiment", f"source {unit}", "sentences", "longer than in training", *METRICS], grid),
            legend(names),
        )
    ]


def clipping_figures(rows: Sequence[Row]) -> list[Figure]:
    """BLEU by clipping distance, if rows differ in it."""
    curves = [(name, curve) for name, curve in clipping_curves(rows) if len(curve) > 1]
    names = [name for name, _ in curves]
    if not curves:
        return []
    lines, grid = [], []
    distances = sorted({row.clipping_distance or 0 for _, curve in curves for row in curve})
    for number, (name, curve) in enumerate(curves):
        bleu = [row.bleu for row in curve]
        points = [(_place(row.clipping_distance or 0), one.mean) for row, one in zip(curve, bleu, strict=True)]
        ends = [(one.mean - (one.error or 0), one.mean + (one.error or 0)) for one in bleu]
        lines.append(Line(name, points, style(number), ends))
        grid += [[name, str(row.clipping_distance), str(row.bleu), str(len(row.scores))] for row in curve]
    panels = line_panels(
        names, lines, BLEU, "clipping distance K", BLEU, categories=[(_place(k), str(k)) for k in distances]
    )
    return [
        Figure(
            "clipping-distance",
            "BLEU by clipping distance",
            "Beyond the distance K, an encoding treats all distances alike. Bars: standard deviation over seeds; of "
            "one seed, the 95 % bootstrap interval. K is drawn on a logarithmic axis, on which 0 has a place.",
            "Shaw et al. 2018, table 2",
            _seeds(rows),
            panels,
            Grid(["encoding", "K", BLEU, "seeds"], grid),
            legend(names),
        )
    ]


def _place(distance: int) -> float:
    return 0.0 if distance == 0 else 1 + math.log2(distance)


def _seeds(rows: Sequence[Row]) -> str:
    counts = sorted({len(row.scores) for row in rows})
    return f"{' or '.join(map(str, counts))} seed{'s' if counts != [1] else ''} an experiment"


def loss_figures(names: Sequence[str], losses: dict[int, list[list[tuple[int, float | None]]]]) -> list[Figure]:
    """Loss on the validation set by update; of several seeds, the first whose log has it."""
    first = [(name, first_of(losses[number])) for number, name in enumerate(names)]
    known = [(name, found) for name, found in first if found is not None]
    if not known:
        return []
    lines = [
        Line(name, [(updates, loss) for updates, loss in found], style(number))
        for number, (name, found) in enumerate(known)
    ]
    shown = [name for name, _ in known]
    grid = [[name, f"{updates:,.0f}", cell(loss, ".3f")] for name, found in known for updates, loss in found]
    return [
        Figure(
            "loss",
            "Validation loss by update",
            "What fairseq-train prints as valid_loss; of several seeds, the first's that has it. There is "
            "none where the training had diverged.",
            "fairseq's training log",
            f"{len(known)} trainings",
            line_panels(shown, lines, "validation loss", "updates", "loss"),
            Grid(["experiment", "updates", "validation loss"], grid),
            legend(shown),
        )
    ]


def scale_of(values: Iterable[float | None], diverging: bool) -> tuple[svg.Limits, str]:
    """One scale for all values, around zero if both sides count."""
    low, high = svg.limits_of(list(values))
    if diverging:
        most = max(abs(low), abs(high))
        return (-most, most), svg.DIVERGING
    return (low, high), svg.SEQUENTIAL
