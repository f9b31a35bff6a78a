"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from posenc_experiments.analysis.figures import (
    Figure,
    clipping_figure,
    length_figure,
    loss_figure,
    model_figures,
)
from posenc_experiments.analysis.record import Record, versions
from posenc_experiments.analysis.systems import compare_systems
from posenc_experiments.analysis.texts import RESAMPLES, read_texts
from posenc_experiments.evaluation.comparison import notes, p_note
from posenc_experiments.evaluation.metrics import BLEU, BOOTSTRAP_SEED, CHRF
from posenc_experiments.evaluation.pooling import Comparison, Row, compared_rows, mean, shown_names, title

HEADERS = ("experiment", "seeds", BLEU, CHRF, "position parameters", "parameters", "train words/s", "p")
#: the page's parts by the first words of their figures' keys
SECTIONS = {
    "by clipping loss": "Length, clipping distance and loss",
    "attention": "Attention by layer and head",
    "logits": "Position logits by distance",
    "learned": "What was learned",
    "shift": "Shift test",
}


@dataclass(frozen=True)
class Analysed:
    """A row of the table with the records of its seeds; the model of the first that has one is shown."""

    row: Row
    records: Sequence[Record]


def render(experiments: Sequence[Analysed], checkpoints: Sequence[Record] = (), baseline: int = 0) -> str:
    """The page of these experiments, comparable rows of one test set, and of checkpoints without experiments.

    Args:
        experiments: rows of one corpus, pair and test set.
        checkpoints: records of bare checkpoints.
        baseline: the row that p-values are against until the reader chooses another.
    """
    rows = [one.row for one in experiments]
    names = _different(shown_names(rows))
    shown = [*names, *(record["checkpoint"] for record in checkpoints)]
    found = [next((one["model"] for one in of_row.records if one["model"]), None) for of_row in experiments]
    found += [record["model"] for record in checkpoints]
    models = {name: model for name, model in zip(_different(shown), found, strict=True) if model is not None}
    figures = [*(_score_figures(experiments, names) if rows else []), *model_figures(models)]
    sections = {
        key: (heading, [figure for figure in figures if figure.key.split("-")[0] in key.split()])
        for key, heading in SECTIONS.items()
    }
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("posenc_experiments.analysis", "page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = cell
    assert environment.loader is not None
    files = {name: environment.loader.get_source(environment, f"page.{name}")[0] for name in ("css", "js")}
    return environment.get_template("page.html").render(
        title=f"Analysis of {title(rows) if rows else 'checkpoints'}",
        subtitle=_subtitle(rows, models),
        sections={key: one for key, one in sections.items() if one[1]},
        headers=HEADERS,
        scores=_table(experiments, names),
        baseline=baseline,
        notes=[*notes(rows), *([p_note(len(rows) - 1)] if len(rows) > 1 else [])] if rows else [],
        test=rows[0].first.test if rows else "",
        sentences=f"{experiments[0].records[0]['text']['tests'][rows[0].first.test]['sentences']:,}" if rows else "",
        data=_data(rows, names) if rows else {},
        style=Markup(files["css"]),
        script=Markup(files["js"]),
        versions=", ".join(f"{name} {version}" for name, version in versions().items()),
        settings=f"Bootstrap: {RESAMPLES:,} samples, seed {BOOTSTRAP_SEED}." if rows else "",
    )


def cell(value: Any, form: str = ".3g") -> str:
    """A number or a text of a table; a dash where there is none."""
    if value is None or value != value:
        return "–"
    return str(value) if isinstance(value, str | int | np.integer) else format(value, form)


def _different(names: Sequence[str]) -> list[str]:
    """The names; repeated ones get a number."""
    return [
        f"{name} ({names[:number].count(name) + 1})" if name in names[:number] else name
        for number, name in enumerate(names)
    ]


def _subtitle(rows: Sequence[Row], models: Sized) -> str:
    trainings = sum(len(row.scores) for row in rows)
    found = {"experiments": len(rows), "trainings": trainings, "models whose attention was analysed": len(models)}
    return ", ".join(f"{count} {what}" for what, count in found.items() if count) + "."


def _score_figures(experiments: Sequence[Analysed], names: Sequence[str]) -> list[Figure]:
    test = experiments[0].row.first.test
    texts = {name: [record["text"] for record in one.records] for name, one in zip(names, experiments, strict=True)}
    figures = [
        length_figure({name: [text["tests"][test] for text in found] for name, found in texts.items()}),
        clipping_figure([one.row for one in experiments]),
        loss_figure({name: [text["valid_losses"] for text in found] for name, found in texts.items()}),
    ]
    return [figure for figure in figures if figure is not None]


def _table(experiments: Sequence[Analysed], names: Sequence[str]) -> list[dict[str, Any]]:
    table = []
    for name, one in zip(names, experiments, strict=True):
        row = one.row
        known = [found for record in one.records if (found := record["text"]["position_parameters"]) is not None]
        positions = statistics.fmean(known) if known else None
        chrf = row.pooled(CHRF)
        cells = [
            (str(len(row.scores)), len(row.scores)),
            (str(row.bleu), row.bleu.mean),
            (str(chrf or "–"), mean(chrf)),
            (cell(positions, ",.0f"), positions),
            (cell(row.first.parameters, ",.0f"), row.first.parameters),
            (cell(row.words_per_second, ",.0f"), row.words_per_second),
        ]
        table.append({"name": name, "cells": cells})
    return table


def _data(rows: Sequence[Row], names: Sequence[str]) -> dict[str, Any]:
    """What the page's script needs: by baseline, the p of each row; and the differences of each two systems."""
    found: dict[str, Any] = {"names": names, "p": [_p_values(row, rows) for row in rows]}
    return found | (compare_systems([read_texts(row.first) for row in rows]) if len(rows) > 1 else {})


def _p_values(baseline: Row, rows: Sequence[Row]) -> list[float | str]:
    """The cell of each row: its p against the baseline, with Holm's correction, or why it has none."""
    tests = [row.tested for row in compared_rows(rows, baseline, Comparison(baseline.first.name))]
    return [
        "baseline" if one is None else "one seed" if one.holm_p_value is None else one.holm_p_value for one in tests
    ]
