"""The page's figures: tables of what the records hold, with drawings of them; page/figures.toml explains each."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import CenteredNorm, Normalize
from matplotlib.figure import Figure as Drawing

from posenc_experiments.analysis.draw import grids, lines, norm_of
from posenc_experiments.analysis.texts import METRICS

Records = Mapping[str, Sequence[dict[str, Any]]]  # the records of the seeds of an experiment, by its name
Models = Mapping[str, dict[str, Any]]  # what analyse_model returned, by the name of the experiment or checkpoint
STACKS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "attention of decoder to encoder",
}
DISTANCE = "distance j - i"
MOST = 16  # of the diagonals of a matrix, and of the values of a parameter, that a table has
#: title, definition and source of each figure, by its key
TEXTS = tomllib.loads(files("posenc_experiments.analysis").joinpath("page/figures.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Figure:
    """A table, and drawings of it under headings; its key names its text."""

    key: str
    table: pd.DataFrame
    drawings: Mapping[str, Drawing] = field(default_factory=dict)


def _each(table: pd.DataFrame, by: list[str], draw: Callable[..., Drawing], *arguments: object) -> dict[str, Drawing]:
    """A drawing of the rows of each value of the columns `by`, which is its heading."""
    return {": ".join(names): draw(part, *arguments) for names, part in table.groupby(by, sort=False)}


def length_figure(records: Records) -> Figure:
    """Scores by source length, means over seeds; `records` are those of the test set."""
    x = next(iter(records.values()))[0]["length_unit"].replace("source ", "source length in ")
    scores = [
        {
            **{"experiment": name, "metric": metric, x: "–".join(dict.fromkeys((f"{one['from']}", f"{one['to']}")))},
            **{"sentences": one["sentences"], "longer than in training": one["longer"]},
            **dict(zip(("score", "low", "high"), one[metric], strict=True)),
        }
        for name, seeds in records.items()
        for metric in METRICS
        for seed in seeds
        for one in seed["by_length"]
    ]
    table = pd.DataFrame(scores).groupby(["experiment", "metric", x], sort=False).mean().reset_index()
    drawn = table.assign(hollow=table["longer than in training"] > 0)
    return Figure("by-length", table, {"": lines(drawn, x, "score", "experiment", "metric")})


def model_figures(models: Models) -> Iterator[Figure]:
    """All figures of these models."""
    if models:
        yield from _attention(models)
        yield from _logits(models)
        yield from learned_figures(models)
        yield _shift(models)


def _attention(models: Models) -> Iterator[Figure]:
    """A grid of layers and heads of each model, of every statistic with one scale of colours."""
    heads = pd.json_normalize(
        [
            {"experiment": name, "attention": where, "layer": number, "head": head_number, **head}
            for name, model in models.items()
            for stack, where in STACKS.items()
            for number, layer in enumerate(model["attention"][stack], 1)
            for head_number, head in enumerate(layer["heads"], 1)
        ]
    )
    for key in (key for key in TEXTS if key.startswith("attention-")):
        statistic, title = key.removeprefix("attention-"), TEXTS[key]["title"]
        if statistic in heads and heads[statistic].notna().any():
            table = heads[["experiment", "attention", "layer", "head", statistic]].dropna()
            table = table.rename(columns={statistic: title}).astype({title: float})
            norm = norm_of(table[title], diverging=statistic == "mean_distance")
            yield Figure(key, table, _each(table, ["attention"], grids, "layer", "head", title, "experiment", norm))


def _by_distance(parts: Iterable[tuple[Any, ...]], *names: str) -> pd.DataFrame:
    """Values by distance of each head: of each part its names, and its values."""
    rows = [
        (*part, f"head {number}", distance, value)
        for *part, one in parts
        for number, values in enumerate(one["heads"], 1)
        for distance, value in zip(one["distances"], values, strict=True)
    ]
    return pd.DataFrame(rows, columns=[*names, "head", DISTANCE, "value"])


def _logits(models: Models) -> Iterator[Figure]:
    """Position logits by distance: a panel for each layer, a line for each head."""
    parts = [
        (name, where, f"layer {number}", layer)
        for name, model in models.items()
        for stack, where in STACKS.items()
        for number, layer in enumerate(model["position_logits"][stack], 1)
        if layer is not None
    ]
    if parts:
        table = _by_distance(parts, "experiment", "attention", "layer")
        drawings = _each(table, ["experiment", "attention"], lines, DISTANCE, "value", "head", "layer")
        yield Figure("logits", table, drawings)


def learned_figures(models: Models) -> Iterator[Figure]:
    """What encodings learned: scalars by distance, vectors by distance or position, matrices, and single numbers."""
    makers = {
        _scalars: ["scalar by distance"],
        _vectors: ["vectors by distance", "vectors by position"],
        _matrices: ["matrix"],
        _numbers: ["scalars", "norm"],
    }
    for make, kinds in makers.items():
        parameters = [
            (name, f"{one['stack']}, {_layer(one)}, {one['name']}", one)
            for name, model in models.items()
            for one in model["learned"]
            if one["kind"] in kinds
        ]
        if parameters:
            yield from make(parameters)


Learned = Sequence[tuple[str, str, dict[str, Any]]]  # a model, a parameter, and what it learned


def _layer(parameter: dict[str, Any]) -> str:
    """The part of the stack that a parameter belongs to."""
    if parameter["kind"] == "vectors by position":
        return "input"
    return "all layers" if parameter["layer"] is None else f"layer {parameter['layer'] + 1}"


def _scalars(parameters: Learned) -> Iterator[Figure]:
    table = _by_distance(parameters, "experiment", "parameter")
    drawings = _each(table, ["experiment"], lines, DISTANCE, "value", "head", "parameter")
    yield Figure("learned-scalars", table, drawings)


def _vectors(parameters: Learned) -> Iterator[Figure]:
    """Norms, with a line for each layer, and grids of cosines."""
    x = "distance or position"
    norms, cosines = [], []
    for model, parameter, one in parameters:
        places = one["distances"] if "distances" in one else one["positions"]
        which = f"{one['stack']}, {one['name']}"
        norms += [(model, which, _layer(one), *values) for values in zip(places, one["norms"], strict=True)]
        cosines += _cells([model, parameter], one["cosine"], places)
    table = pd.DataFrame(norms, columns=["experiment", "parameter", "layer", x, "norm"])
    yield Figure("learned-vectors", table, _each(table, ["experiment"], lines, x, "norm", "layer", "parameter"))
    yield _grids("learned-cosines", ["experiment", "parameter"], cosines, CenteredNorm(0, 1))


def _matrices(parameters: Learned) -> Iterator[Figure]:
    cells = []
    for model, parameter, one in parameters:
        for number, matrix in enumerate(one["heads"], 1):
            cells += _cells([model, parameter, f"head {number}"], matrix, range(len(matrix[0])))
    yield _grids("learned-matrices", ["experiment", "parameter", "head"], cells)


def _cells(names: list[str], matrix: list[list[float]], labels: Sequence[int]) -> list[tuple[Any, ...]]:
    """These names, the two labels and the value of each cell."""
    return [(*names, labels[i], labels[j], float(value)) for (i, j), value in np.ndenumerate(matrix)]


def _grids(key: str, names: list[str], cells: list[tuple[Any, ...]], norm: Normalize | None = None) -> Figure:
    """Grids of i and j under the other names, with panels of the last one; the table has the means of diagonals."""
    drawn = pd.DataFrame(cells, columns=[*names, "i", "j", "value"])
    upper = drawn.assign(apart=drawn["j"] - drawn["i"]).query(f"0 <= apart < {MOST}")
    table = upper.groupby([*names, "apart"], sort=False)["value"].mean().reset_index()
    norm = norm or norm_of(drawn["value"], diverging=True)
    table = table.rename(columns={"apart": "j - i", "value": "mean"})
    return Figure(key, table, _each(drawn, names[:-1], grids, "i", "j", "value", names[-1], norm))


def _numbers(parameters: Learned) -> Iterator[Figure]:
    rows = []
    for model, parameter, one in parameters:
        if one["kind"] == "norm":
            text = f"{'×'.join(map(str, one['shape']))} values of norm {one['norm']:.3g}"
        else:
            values = np.ravel(one["values"])
            more = f" and {len(values) - MOST:,} more" if len(values) > MOST else ""
            text = ", ".join(f"{value:.3g}" for value in values[:MOST]) + more
        rows.append((model, parameter, text))
    yield Figure("learned-numbers", pd.DataFrame(rows, columns=["experiment", "parameter", "values"]))


def _shift(models: Models) -> Figure:
    """The shift test: how much depends on where the source begins."""
    measures = {
        "changed_outputs": "changed predictions (share)",
        "cosine": "similarity of the encoder's states (cosine)",
    }
    rows = [
        (name, str(one["k"]), title, one[key])
        for name, model in models.items()
        for key, title in measures.items()
        for one in model["shift"]
    ]
    table = pd.DataFrame(rows, columns=["experiment", "k", "measure", "value"]).astype({"value": float})
    return Figure("shift", table, {"": lines(table, "k", "value", "experiment", "measure")})
