"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from markupsafe import Markup

from posenc_experiments.analysis import svg
from posenc_experiments.analysis.figures import (
    Figure,
    cell,
    clipping_figures,
    first_of,
    length_figures,
    loss_figures,
    pooled,
)
from posenc_experiments.analysis.model_figures import model_figures
from posenc_experiments.analysis.record import Record, versions
from posenc_experiments.analysis.systems import compare_systems
from posenc_experiments.analysis.texts import RESAMPLES, read_texts
from posenc_experiments.evaluation.comparison import notes, p_note
from posenc_experiments.evaluation.metrics import BLEU, BOOTSTRAP_SEED, CHRF
from posenc_experiments.evaluation.pooling import Comparison, Row, compared_rows, mean, shown_names, title

HEADERS = ("experiment", "seeds", BLEU, CHRF, "position parameters", "parameters", "train words/s", "p")


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
    found = [first_of(record["model"] for record in one.records) for one in experiments]
    found += [record["model"] for record in checkpoints]
    models = [(name, model) for name, model in zip(_different(shown), found, strict=True) if model is not None]
    figures = _score_figures(experiments, names) if rows else []
    sections: list[tuple[str, str, Sequence[Figure]]] = [("scores", "Scores", [])] if rows else []
    sections += [("lengths", "Length, clipping distance and loss", figures)] if figures else []
    sections += _model_sections(models)
    sections += [("systems", "Two systems", [])] if len(rows) > 1 else []
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("posenc_experiments.analysis", "page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    assert environment.loader is not None
    files = {name: environment.loader.get_source(environment, f"page.{name}")[0] for name in ("css", "js")}
    return environment.get_template("page.html").render(
        title=f"Analysis of {title(rows) if rows else 'checkpoints'}",
        subtitle=_subtitle(rows, models),
        sections=sections,
        headers=HEADERS,
        scores=_table(experiments, names),
        baseline=baseline,
        notes=[*notes(rows), *([p_note(len(rows) - 1)] if len(rows) > 1 else [])] if rows else [],
        test=rows[0].first.test if rows else "",
        sentences=f"{experiments[0].records[0]['text']['tests'][rows[0].first.test]['sentences']:,}" if rows else "",
        data=_data(rows, names) if rows else {},
        marker=svg.marker,
        style=Markup(files["css"]),
        script=Markup(files["js"]),
        versions=", ".join(f"{name} {version}" for name, version in versions().items()),
        settings=f"Bootstrap: {RESAMPLES:,} samples, seed {BOOTSTRAP_SEED}." if rows else "",
    )


def _different(names: Sequence[str]) -> list[str]:
    """The names; repeated ones get a number."""
    return [
        f"{name} ({names[:number].count(name) + 1})" if name in names[:number] else name
        for number, name in enumerate(names)
    ]


def _subtitle(rows: Sequence[Row], models: Sequence[tuple[str, Any]]) -> str:
    trainings = sum(len(row.scores) for row in rows)
    found = {"experiments": len(rows), "trainings": trainings, "models whose attention was analysed": len(models)}
    return ", ".join(f"{count} {what}" for what, count in found.items() if count) + "."


def _score_figures(experiments: Sequence[Analysed], names: Sequence[str]) -> list[Figure]:
    rows = [one.row for one in experiments]
    test = rows[0].first.test
    texts = {
        number: [record["text"]["tests"][test] for record in one.records] for number, one in enumerate(experiments)
    }
    losses = {
        number: [record["text"]["valid_losses"] for record in one.records] for number, one in enumerate(experiments)
    }
    return [*length_figures(names, texts), *clipping_figures(rows), *loss_figures(names, losses)]


def _model_sections(models: Sequence[tuple[str, Any]]) -> list[tuple[str, str, Sequence[Figure]]]:
    figures = model_figures([name for name, _ in models], [model for _, model in models])
    headings = {
        "attention": "Attention by layer and head",
        "logits": "Position logits by distance",
        "learned": "What was learned",
        "shift": "Shift test",
    }
    sections = [
        (key + "-section", heading, [one for one in figures if one.key.split("-")[0] == key])
        for key, heading in headings.items()
    ]
    return [section for section in sections if section[2]]


def _table(experiments: Sequence[Analysed], names: Sequence[str]) -> list[dict[str, Any]]:
    table = []
    for name, one in zip(names, experiments, strict=True):
        row = one.row
        positions = pooled(record["text"]["position_parameters"] for record in one.records)
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
