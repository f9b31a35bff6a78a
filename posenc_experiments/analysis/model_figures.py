"""The page's figures of models: attention by layer and head, position logits, what was learned, the shift test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from posenc_experiments.analysis import svg
from posenc_experiments.analysis.figures import Figure, Grid, Panel, cell, legend, line_panels, scale_of
from posenc_experiments.analysis.svg import Line, chart, heatmap, scale, style

Model = dict[str, Any]  # what analyse_model found
STACKS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "attention of decoder to encoder",
}
DISTANCE = "distance j - i"
BY_POSITION = "vectors by position"
DIAGONALS = 16  # of a matrix that its table has
VALUES = 16  # of a parameter that its table has


@dataclass(frozen=True)
class Statistic:
    """A number of each head."""

    key: tuple[str, ...]
    title: str
    definition: str
    source: str
    diverging: bool = False


HEADS = "Raganato et al. 2020; Voita et al. 2019"
CHEN = "Chen et al. 2023"
STATISTICS = (
    Statistic(
        ("mean_distance",),
        "Mean attended distance",
        "Mean of j - i, the position of the key less that of the query, weighted by attention.",
        HEADS,
        diverging=True,
    ),
    Statistic(("mean_absolute_distance",), "Mean absolute distance", "Mean of |j - i|, weighted by attention.", HEADS),
    Statistic(("share", "-1"), "Attention to the token before", "The share of attention at j = i - 1.", HEADS),
    Statistic(("share", "0"), "Attention to the token itself", "The share of attention at j = i.", HEADS),
    Statistic(("share", "+1"), "Attention to the token after", "The share of attention at j = i + 1.", HEADS),
    Statistic(("entropy",), "Entropy", "Entropy of a query's attention, in nats.", HEADS),
    Statistic(
        ("relative_entropy",),
        "Relative entropy",
        "Entropy divided by that of equal attention to all visible keys: 0 to 1.",
        HEADS,
    ),
    Statistic(
        ("logit_rank",),
        "Rank of the logits",
        "Rank of a sentence's matrix of attention logits before masks, divided by the highest possible one.",
        "DIET: Chen et al. 2021, figures 2 and 8",
    ),
    Statistic(("locality",), "Locality", "Attention weighted by 1 / 2^|j - i|: 1 is all attention to itself.", CHEN),
    Statistic(
        ("symmetry",),
        "Symmetry",
        "How alike attention to the left and to the right is at equal distances: 1 is equal. Of encoders only.",
        CHEN,
    ),
)


def head_value(head: dict[str, Any], key: Sequence[str]) -> float | None:
    """A statistic of a head."""
    value: Any = head
    for part in key:
        value = (value or {}).get(part)
    return None if value is None else float(value)


def model_figures(names: Sequence[str], models: Sequence[Model]) -> list[Figure]:
    """All figures of these experiments' or checkpoints' models."""
    if not models:
        return []
    return [
        *attention_figures(names, models),
        *logit_figures(names, models),
        *learned_figures(names, models),
        *shift_figures(names, models),
    ]


def _sample(models: Sequence[Model]) -> str:
    found = {(model["sentences"], *model["tokens"].values(), model.get("skipped", 0)) for model in models}
    return "; ".join(
        f"{sentences:,} sentences, {source:,} source and {target:,} target tokens"
        + (f" ({skipped:,} longer sentences were left out)" if skipped else "")
        for sentences, source, target, skipped in sorted(found)
    )


def attention_figures(names: Sequence[str], models: Sequence[Model]) -> Iterator[Figure]:
    """A grid of layers and heads of each stack and model, of every statistic with one scale of colours."""
    for statistic in STATISTICS:
        grids = {
            (stack, name): [
                [head_value(head, statistic.key) for head in layer["heads"]] for layer in model["attention"][stack]
            ]
            for stack in STACKS
            for name, model in zip(names, models, strict=True)
            if model["attention"].get(stack)
        }
        values = [value for grid in grids.values() for row in grid for value in row]
        if all(value is None for value in values):
            continue
        limits, colours = scale_of(values, statistic.diverging)
        panels = [
            Panel(
                name,
                heatmap(
                    _even(grid),
                    f"{statistic.title} by layer and head, {name}, {STACKS[stack]}",
                    limits,
                    colours,
                    "layer",
                    "head",
                ),
                STACKS[stack],
            )
            for (stack, name), grid in grids.items()
            if any(value is not None for row in grid for value in row)
        ]
        rows = []
        for stack, where in STACKS.items():
            layers = max((len(grids.get((stack, name), ())) for name in names), default=0)
            for layer in range(layers):
                of_layer = [grids[stack, name][layer : layer + 1] if (stack, name) in grids else [] for name in names]
                heads = max((len(found[0]) for found in of_layer if found), default=0)
                for head in range(heads):
                    cells = [cell(found[0][head] if found and head < len(found[0]) else None) for found in of_layer]
                    rows.append([f"{where}, layer {layer + 1}, head {head + 1}", *cells])
        yield Figure(
            "attention-" + "-".join(statistic.key).replace("+", "plus-").replace("_", "-"),
            statistic.title,
            statistic.definition + (" Where it has no meaning, the cell is empty." if None in values else ""),
            statistic.source,
            _sample(models),
            panels,
            Grid(["head", *names], rows),
            scale=scale(limits, colours, "one scale for all grids"),
        )


def _even(grid: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    """Rows of one length: layers may differ in heads."""
    width = max(len(row) for row in grid)
    return [[*row, *[None] * (width - len(row))] for row in grid]


def _curves(distances: Sequence[float], heads: Sequence[Sequence[float | None]]) -> list[Line]:
    return [
        Line(f"head {number + 1}", list(zip(distances, values, strict=True)), style(number))
        for number, values in enumerate(heads)
    ]


def logit_figures(names: Sequence[str], models: Sequence[Model]) -> Iterator[Figure]:
    """Position logits by distance: a panel for each layer, a line for each head."""
    for stack, where in STACKS.items():
        panels, rows, most = [], [], 0
        for name, model in zip(names, models, strict=True):
            layers = [layer for layer in model["position_logits"].get(stack) or [] if layer is not None]
            limits = svg.limits_of([value for layer in layers for head in layer["heads"] for value in head])
            for number, layer in enumerate(model["position_logits"].get(stack) or []):
                if layer is None:
                    continue
                title = f"layer {number + 1}"
                alt = f"Position logits by distance, {where}, {name}, {title}, {len(layer['heads'])} heads"
                lines = _curves(layer["distances"], layer["heads"])
                drawing = chart(lines, alt, DISTANCE, "logit", y_limits=limits)
                panels.append(Panel(title, drawing, name))
                most = max(most, len(lines))
                for at, distance in enumerate(layer["distances"]):
                    values = ", ".join(cell(head[at]) for head in layer["heads"])
                    rows.append([name, str(number + 1), cell(distance, "g"), values])
        if panels:
            yield Figure(
                f"logits-{stack}",
                f"Position logits by distance: {where}",
                "Logits with positions less those of the words alone, over real queries and keys, the mean at each "
                "distance. All layers of one experiment have one axis.",
                "DIET: Chen et al. 2021, figure 6; Huang et al. 2020, figure 4",
                _sample(models),
                panels,
                Grid(["experiment", "layer", "distance", "logits of the heads"], rows),
                [f"head {head + 1}" for head in range(most)],
            )


def learned_figures(names: Sequence[str], models: Sequence[Model]) -> Iterator[Figure]:
    """What encodings learned: scalars and vectors by distance, matrices, and single numbers."""
    for kind in LEARNED:
        entries = [
            Parameter(name, f"{one['stack']}, {_layer(one)}, {one['name']}", one)
            for name, model in zip(names, models, strict=True)
            for one in model["learned"]
            if one["kind"] in kind.names
        ]
        if entries:
            panels, table, ramp = kind.draw(entries)
            yield Figure(
                kind.key,
                kind.title,
                kind.definition,
                kind.source,
                f"{len(entries)} parameters of {len(names)} model{'s' if len(names) > 1 else ''}",
                panels,
                table,
                _lines_of(kind, entries),
                ramp,
            )


def _lines_of(kind: Learned, entries: Entries) -> list[str]:
    """The legend: heads of scalars, layers of vectors."""
    if kind.draw is _scalars_by_distance:
        return [f"head {head + 1}" for head in range(max(len(entry.data["heads"]) for entry in entries))]
    if kind.draw is _vectors_by_distance:
        layers = [entry.data["layer"] for entry in entries]
        names = [
            f"layer {layer + 1}" for layer in range(max((one + 1 for one in layers if one is not None), default=0))
        ]
        if None in layers:  # drawn as the first layer is
            names[:1] = [" or ".join([*names[:1], "all layers"])]
        return names
    return []


def _layer(parameter: dict[str, Any]) -> str:
    """The part of the stack that a parameter belongs to."""
    if parameter["kind"] == BY_POSITION:
        return "input"
    return "all layers" if parameter["layer"] is None else f"layer {parameter['layer'] + 1}"


class Parameter(NamedTuple):
    """A learned parameter: its model, its place and name, and its values as `learned` has them."""

    model: str
    which: str
    data: dict[str, Any]

    @property
    def title(self) -> str:
        return f"{self.model}: {self.which}"


Entries = Sequence[Parameter]
Drawn = tuple[list[Panel], Grid, Any]


def _scalars_by_distance(entries: Entries) -> Drawn:
    panels, rows = [], []
    for entry in entries:
        distances, heads = entry.data["distances"], entry.data["heads"]
        drawing = chart(_curves(distances, heads), f"Learned scalars, {entry.title}", DISTANCE, "value")
        panels.append(Panel(entry.which, drawing, entry.model))
        for at, distance in enumerate(distances):
            rows.append([entry.title, cell(distance, "g"), ", ".join(cell(head[at]) for head in heads)])
    return panels, Grid(["parameter", "distance", "values of the heads"], rows), None


def _vectors_by_distance(entries: Entries) -> Drawn:
    return _vectors(entries, "distance", DISTANCE, "j - i")


def _vectors_by_position(entries: Entries) -> Drawn:
    return _vectors(entries, "position", "position", "position")


def _vectors(entries: Entries, of: str, axis: str, side: str) -> Drawn:
    """Norms, with a line for each layer in attention, and grids of cosines.

    Args:
        entries: vectors of each distance or position.
        of: "distance" or "position".
        axis: the label of the axis below norms.
        side: the label of both sides of a grid.
    """
    limits = svg.limits_of([norm for entry in entries for norm in entry.data["norms"]])
    lines: dict[tuple[str, str], list[Line]] = {}
    grids, rows = [], []
    for entry in entries:
        places, norms, cosine = (entry.data[key] for key in (f"{of}s", "norms", "cosine"))
        labels = [cell(place, "g") for place in places]
        apart = diagonal_means(cosine)
        for at, (label, norm) in enumerate(zip(labels, norms, strict=True)):
            rows.append([entry.title, label, cell(norm), str(at), cell(apart[at])])
        if len(places) == 1:  # there is nothing to compare with
            continue
        same = lines.setdefault((entry.model, f"{entry.data['stack']}, {entry.data['name']}"), [])
        line = style(entry.data["layer"] or 0)
        same.append(Line(_layer(entry.data), list(zip(places, norms, strict=True)), line))
        alt = f"Cosine similarity, {entry.title}"
        drawing = heatmap(cosine, alt, (-1, 1), svg.DIVERGING, side, side, (labels, labels))
        grids.append(Panel(entry.which, drawing, f"{entry.model}: cosine similarity"))
    panels = []
    for (model, which), of_layers in lines.items():
        alt = f"Norms of vectors by {of}, {model}, {which}, {len(of_layers)} lines"
        drawing = chart(of_layers, alt, axis, "norm", y_limits=limits)
        panels.append(Panel(which, drawing, f"{model}: norm" + (", a line for each layer" if of == "distance" else "")))
    headers = ["parameter", of, "norm", f"{of}s apart", "mean cosine"]
    return [*panels, *grids], Grid(headers, rows), scale((-1, 1), svg.DIVERGING, "cosine similarity")


def diagonal_means(matrix: Sequence[Sequence[float | None]]) -> list[float | None]:
    """The mean of the main diagonal and of each above it, of the values that are there."""
    found: list[float | None] = []
    for offset in range(len(matrix[0])):
        places = [(row, row + offset) for row in range(min(len(matrix), len(matrix[0]) - offset))]
        values = [value for row, column in places if (value := matrix[row][column]) is not None]
        found.append(float(np.mean(values)) if values else None)
    return found


def _matrices(entries: Entries) -> Drawn:
    values = [value for entry in entries for head in entry.data["heads"] for row in head for value in row]
    limits, colours = scale_of(values, diverging=True)
    panels, rows = [], []
    for entry in entries:
        for head, matrix in enumerate(entry.data["heads"], 1):
            labels = [str(i) for i in range(len(matrix))], [str(j) for j in range(len(matrix[0]))]
            alt = f"Learned matrix, {entry.title}, head {head}"
            drawing = heatmap(matrix, alt, limits, colours, "query i", "key j", labels)
            panels.append(Panel(f"head {head}", drawing, entry.title))
            means = diagonal_means(matrix)[:DIAGONALS]
            rows += [[entry.title, str(head), str(offset), cell(mean)] for offset, mean in enumerate(means)]
    headers = ["parameter", "head", "j - i", "mean"]
    return panels, Grid(headers, rows), scale(limits, colours, "one scale for all grids")


def _numbers(entries: Entries) -> Drawn:
    rows = []
    for entry in entries:
        if entry.data["kind"] == "norm":
            size = "×".join(map(str, entry.data["shape"]))
            rows.append([entry.title, f"{size} values of norm {cell(entry.data['norm'])}"])
            continue
        values = np.ravel(entry.data["values"])
        more = f" and {len(values) - VALUES:,} more" if len(values) > VALUES else ""
        rows.append([entry.title, ", ".join(cell(float(value)) for value in values[:VALUES]) + more])
    return [], Grid(["parameter", "values"], rows), None


@dataclass(frozen=True)
class Learned:
    """How parameters of some kinds are drawn."""

    key: str
    names: tuple[str, ...]
    draw: Callable[[Entries], Drawn]
    title: str
    definition: str
    source: str


LEARNED = (
    Learned(
        "learned-scalars-by-distance",
        ("scalar by distance",),
        _scalars_by_distance,
        "Learned scalars by distance",
        "What is added to the logits at each distance, or multiplies them, a line for each head.",
        "DIET: Chen et al. 2021, figure 6; Huang et al. 2020, figure 4",
    ),
    Learned(
        "learned-vectors-by-distance",
        ("vectors by distance",),
        _vectors_by_distance,
        "Learned vectors by distance",
        "Euclidean norm of the vector of each distance, and the cosine of each two of them. The table has the mean "
        "cosine of vectors that are so many distances apart.",
        "the vectors: Shaw et al. 2018",
    ),
    Learned(
        "learned-vectors-by-position",
        (BY_POSITION,),
        _vectors_by_position,
        "Learned vectors at the input",
        "What is added to the embeddings at each position, from 0: its Euclidean norm, with the factor of --bias-gain, "
        "and the cosine of each two positions. The table has the mean cosine of positions that are so many apart.",
        "the vectors: Gehring et al. 2017; their cosine: Wang and Chen 2020",
    ),
    Learned(
        "learned-matrices",
        ("matrix",),
        _matrices,
        "Learned matrices of positions",
        "What is added to the logit of each two positions, a grid for each head. The table has the means of diagonals.",
        "DIET-Abs: Chen et al. 2021, figures 4 and 7",
    ),
    Learned(
        "learned-numbers",
        ("scalars", "norm"),
        _numbers,
        "Other position parameters",
        "Their values; of large ones the norm alone.",
        "docs/encodings.md names the paper of each encoding",
    ),
)


def shift_figures(names: Sequence[str], models: Sequence[Model]) -> list[Figure]:
    """The shift test: how much depends on where the source begins."""
    if not any(model["shift"] for model in models):
        return []
    measures = {
        "changed_outputs": ("changed predictions", "share"),
        "cosine": ("similarity of the encoder's states", "cosine"),
    }
    panels = []
    shifts = sorted({one["k"] for model in models for one in model["shift"]})
    places = {k: float(number) for number, k in enumerate(shifts)}  # they are powers of ten
    ticks = [(place, str(k)) for k, place in places.items()]
    for key, (title, unit) in measures.items():
        lines = [
            Line(name, [(places[one["k"]], one[key]) for one in model["shift"]], style(number))
            for number, (name, model) in enumerate(zip(names, models, strict=True))
        ]
        panels += line_panels(names, lines, title, "k", unit, categories=ticks)
    rows = [
        [name, str(one["k"]), *(cell(one[key]) for key in measures)]
        for name, model in zip(names, models, strict=True)
        for one in model["shift"]
    ]
    return [
        Figure(
            "shift",
            "Shift test",
            "k is added to all positions of the source: the share of target tokens whose most probable word changes, "
            "the reference before them given, and the mean cosine of the encoder's states with those at k = 0. Where a "
            "table of positions is too short, there is no value.",
            "SHAPE: Kiyono et al. 2021",
            _sample(models),
            panels,
            Grid(["experiment", "k", *(title for title, _ in measures.values())], rows),
            legend(names),
        )
    ]
