"""The page's figures: tables of what the records hold, with drawings of them; page/figures.toml explains each."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure as Drawing

from posenc_experiments.analysis.draw import grids, lines, norm_of, picture
from posenc_experiments.analysis.texts import METRICS

Records = Mapping[str, Sequence[dict[str, Any]]]  # what was found of the seeds of an experiment, by its name
Models = Mapping[str, dict[str, Any]]  # what analyse_model found, by the name of the experiment or checkpoint
STACKS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "attention of decoder to encoder",
}
#: the statistics of heads, by the figures' keys
STATISTICS = {
    **{"mean-distance": "mean_distance", "mean-absolute-distance": "mean_absolute_distance"},
    **{"share-before": "share.-1", "share-itself": "share.0", "share-after": "share.+1", "entropy": "entropy"},
    **{"relative-entropy": "relative_entropy", "logit-rank": "logit_rank", "locality": "locality"},
    **{"symmetry": "symmetry"},
}
DISTANCE = "distance j - i"
MOST = 16  # of the diagonals of a matrix, and of the values of a parameter, that a table has
TEXTS = tomllib.loads(files("posenc_experiments.analysis").joinpath("page/figures.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Figure:
    """A table, and drawings of it under headings; its key names its text and its place in the page's addresses."""

    key: str
    table: pd.DataFrame
    drawings: Mapping[str, Drawing]
    sample: str  # what it was measured on

    @property
    def text(self) -> dict[str, str]:
        """Its title, definition and source."""
        return TEXTS[self.key]

    @property
    def pictures(self) -> list[tuple[str, Markup]]:
        """The headings, and the drawings as elements of the page."""
        title = self.text["title"]
        return [(name, picture(one, ", ".join(filter(None, (title, name))))) for name, one in self.drawings.items()]


def length_figure(records: Records) -> Figure:
    """Scores by source length, means over seeds; `records` are those of the test set."""
    first = next(iter(records.values()))[0]
    x, buckets = first["length_unit"].replace("source ", "source length in "), first["by_length"]
    seeds = pd.DataFrame(
        [
            {
                **{"experiment": name, x: _range(bucket["from"], bucket["to"]), "sentences": bucket["sentences"]},
                **{"longer than in training": bucket["longer"], "metric": metric},
                **dict(zip(("score", "low", "high"), bucket[metric], strict=True)),
            }
            for name, found in records.items()
            for metric in METRICS
            for seed in found
            for bucket in seed["by_length"]
        ]
    )
    table = seeds.groupby(["experiment", "metric", x], sort=False).mean().reset_index()
    drawn = table.assign(hollow=table["longer than in training"] > 0)
    sample = f"{first['sentences']:,} sentences in buckets of {', '.join(str(one['sentences']) for one in buckets)}"
    return Figure("by-length", table, {"": lines(drawn, x, "score", "experiment", "metric")}, sample)


def _range(first: int, last: int) -> str:
    return f"{first}–{last}" if first < last else str(first)


def loss_figure(losses: Mapping[str, Sequence[Any]]) -> Figure | None:
    """Loss on the validation set by update; of several seeds, the first whose log has it."""
    known = {name: found for name, seeds in losses.items() if (found := next(filter(None, seeds), None))}
    rows = [(name, updates, loss, "validation loss") for name, found in known.items() for updates, loss in found]
    if not rows:
        return None
    drawn = pd.DataFrame(rows, columns=["experiment", "updates", "loss", "panel"])
    drawing = lines(drawn, "updates", "loss", "experiment", "panel")
    return Figure("loss", drawn.drop(columns="panel"), {"": drawing}, f"{len(known)} trainings")


def model_figures(models: Models) -> list[Figure]:
    """All figures of these models."""
    if not models:
        return []
    return [*_attention(models), *_logits(models), *learned_figures(models), *_shift(models)]


def _sample(models: Models) -> str:
    found = {(model["sentences"], *model["tokens"].values(), model.get("skipped", 0)) for model in models.values()}
    return "; ".join(
        f"{sentences:,} sentences, {source:,} source and {target:,} target tokens"
        + (f" ({skipped:,} longer sentences were left out)" if skipped else "")
        for sentences, source, target, skipped in sorted(found)
    )


def attention_table(models: Models) -> pd.DataFrame:
    """The statistics of each head."""
    return pd.json_normalize(
        [
            {"experiment": name, "attention": where, "layer": layer, "head": number, **head}
            for name, model in models.items()
            for stack, where in STACKS.items()
            for layer, heads in enumerate(model["attention"].get(stack) or [], 1)
            for number, head in enumerate(heads["heads"], 1)
        ]
    )


def _attention(models: Models) -> Iterator[Figure]:
    """A grid of layers and heads of each model, of every statistic with one scale of colours."""
    heads = attention_table(models)
    for key, column in STATISTICS.items():
        if column not in heads or heads[column].isna().all():
            continue
        name = TEXTS[f"attention-{key}"]["title"]
        table = heads[["experiment", "attention", "layer", "head", column]].rename(columns={column: name})
        norm = norm_of(table[name].dropna().astype(float), key == "mean-distance")
        drawings = {
            where: grids(part, "layer", "head", name, "experiment", norm)
            for where, part in table.groupby("attention", sort=False)
            if part[name].notna().any()
        }
        yield Figure(f"attention-{key}", table, drawings, _sample(models))


def _logits(models: Models) -> Iterator[Figure]:
    """Position logits by distance: a panel for each layer, a line for each head."""
    parts = {
        (name, where, f"layer {number}"): _heads(layer, "logit")
        for name, model in models.items()
        for stack, where in STACKS.items()
        for number, layer in enumerate(model["position_logits"].get(stack) or [], 1)
        if layer is not None
    }
    if parts:
        table = _concatenated(parts, ["experiment", "attention", "layer"])
        drawings = {
            ": ".join(names): lines(part, DISTANCE, "logit", "head", "layer", one_scale=True)
            for names, part in table.groupby(["experiment", "attention"], sort=False)
        }
        yield Figure("logits", table, drawings, _sample(models))


def _heads(found: dict[str, Any], value: str) -> pd.DataFrame:
    """Values by distance of each head."""
    rows = [
        (f"head {number}", distance, one)
        for number, values in enumerate(found["heads"], 1)
        for distance, one in zip(found["distances"], values, strict=True)
    ]
    return pd.DataFrame(rows, columns=["head", DISTANCE, value])


def _concatenated(parts: Mapping[Any, pd.DataFrame], names: list[str]) -> pd.DataFrame:
    """The tables below each other, their keys as the first columns."""
    return pd.concat(parts, names=[*names, None]).reset_index(names).reset_index(drop=True)


def learned_figures(models: Models) -> Iterator[Figure]:
    """What encodings learned: scalars and vectors by distance, vectors by position, matrices, and single numbers."""
    entries = [
        (name, f"{one['stack']}, {layer}, {one['name']}", layer, one)
        for name, model in models.items()
        for one in model["learned"]
        for layer in [_layer(one)]
    ]
    makers = {
        "learned-scalars-by-distance": (("scalar by distance",), _scalars),
        "learned-vectors-by-distance": (("vectors by distance",), _vectors),
        "learned-vectors-by-position": (("vectors by position",), _vectors),
        "learned-matrices": (("matrix",), _matrices),
        "learned-numbers": (("scalars", "norm"), _numbers),
    }
    for key, (kinds, make) in makers.items():
        if found := [entry for entry in entries if entry[3]["kind"] in kinds]:
            sample = f"{len(found)} parameters of {len(models)} model{'s' if len(models) > 1 else ''}"
            yield Figure(key, *make(found), sample)


Entries = Sequence[tuple[str, str, str, dict[str, Any]]]  # a model, a parameter, its layer, and what it learned
Drawn = tuple[pd.DataFrame, dict[str, Drawing]]


def _layer(parameter: dict[str, Any]) -> str:
    """The part of the stack that a parameter belongs to."""
    if parameter["kind"] == "vectors by position":
        return "input"
    return "all layers" if parameter["layer"] is None else f"layer {parameter['layer'] + 1}"


def _scalars(entries: Entries) -> Drawn:
    parts = {(model, parameter): _heads(found, "value") for model, parameter, _, found in entries}
    table = _concatenated(parts, ["experiment", "parameter"])
    return table, {
        model: lines(part, DISTANCE, "value", "head", "parameter")
        for model, part in table.groupby("experiment", sort=False)
    }


def _vectors(entries: Entries) -> Drawn:
    """Norms, with a line for each layer, and grids of cosines."""
    by = "distance" if "distances" in entries[0][3] else "position"
    axis = DISTANCE if by == "distance" else by
    norms, cosines, rows = [], [], []
    for model, parameter, layer, found in entries:
        places, cosine = found[f"{by}s"], np.array(found["cosine"])
        apart = [float(cosine.diagonal(offset).mean()) for offset in range(len(places))]
        rows += [
            (model, parameter, *values)
            for values in zip(places, found["norms"], range(len(places)), apart, strict=True)
        ]
        if len(places) > 1:  # there is something to compare with
            which = f"{found['stack']}, {found['name']}"
            norms += [(model, which, layer, *values) for values in zip(places, found["norms"], strict=True)]
            cosines += [(model, parameter, *values) for values in _cells(cosine, places)]
    of_norms = pd.DataFrame(norms, columns=["experiment", "parameter", "layer", axis, "norm"])
    of_pairs = pd.DataFrame(cosines, columns=["experiment", "parameter", axis, f"other {by}", "cosine"])
    drawings = {
        f"{model}: norm": lines(part, axis, "norm", "layer", "parameter", one_scale=True)
        for model, part in of_norms.groupby("experiment", sort=False)
    }
    drawings |= {
        f"{model}: cosine similarity": grids(part, axis, f"other {by}", "cosine", "parameter", CenteredNorm(0, 1))
        for model, part in of_pairs.groupby("experiment", sort=False)
    }
    return pd.DataFrame(rows, columns=["experiment", "parameter", by, "norm", f"{by}s apart", "mean cosine"]), drawings


def _cells(matrix: np.ndarray, labels: Sequence[float]) -> Iterator[tuple[float, float, float]]:
    """The two labels and the value of each cell."""
    for place, value in np.ndenumerate(matrix):
        yield labels[place[0]], labels[place[1]], float(value)


def _matrices(entries: Entries) -> Drawn:
    rows, cells = [], []
    for model, parameter, _, found in entries:
        for head, matrix in enumerate(map(np.array, found["heads"]), 1):
            offsets = range(min(MOST, matrix.shape[1]))
            rows += [(model, parameter, head, offset, float(matrix.diagonal(offset).mean())) for offset in offsets]
            cells += [
                (f"{model}: {parameter}", f"head {head}", *one) for one in _cells(matrix, range(max(matrix.shape)))
            ]
    drawn = pd.DataFrame(cells, columns=["parameter", "head", "query i", "key j", "value"])
    norm = norm_of(drawn["value"], diverging=True)
    drawings = {
        title: grids(part, "query i", "key j", "value", "head", norm)
        for title, part in drawn.groupby("parameter", sort=False)
    }
    return pd.DataFrame(rows, columns=["experiment", "parameter", "head", "j - i", "mean"]), drawings


def _numbers(entries: Entries) -> Drawn:
    rows = []
    for model, parameter, _, found in entries:
        if found["kind"] == "norm":
            text = f"{'×'.join(map(str, found['shape']))} values of norm {found['norm']:.3g}"
        else:
            values = np.ravel(found["values"])
            more = f" and {len(values) - MOST:,} more" if len(values) > MOST else ""
            text = ", ".join(f"{value:.3g}" for value in values[:MOST]) + more
        rows.append((model, parameter, text))
    return pd.DataFrame(rows, columns=["experiment", "parameter", "values"]), {}


def _shift(models: Models) -> Iterator[Figure]:
    """The shift test: how much depends on where the source begins."""
    measures = {
        "changed_outputs": "changed predictions (share)",
        "cosine": "similarity of the encoder's states (cosine)",
    }
    rows = [
        {"experiment": name, "k": str(one["k"]), "measure": title, "value": one[key]}
        for name, model in models.items()
        for key, title in measures.items()
        for one in model["shift"]
    ]
    if rows:
        table = pd.DataFrame(rows).astype({"value": float})
        drawing = lines(table, "k", "value", "experiment", "measure")
        yield Figure("shift", table, {"": drawing}, _sample(models))
