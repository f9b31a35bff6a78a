"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from posenc_experiments.analysis.draw import picture
from posenc_experiments.analysis.figures import TEXTS, length_figure, model_figures
from posenc_experiments.analysis.record import Record
from posenc_experiments.analysis.systems import compare_systems
from posenc_experiments.analysis.texts import read_texts
from posenc_experiments.evaluation.metrics import BLEU
from posenc_experiments.evaluation.results import bleu_results
from posenc_experiments.evaluation.statistics.comparison import ComparedTable, Comparison, compared, jackknifed
from posenc_experiments.evaluation.statistics.pooling import PooledRow, pool
from posenc_experiments.evaluation.tables.comparisons import difference, interval_notes, report, verdict


def render(results: pd.DataFrame | None, records: Mapping[str, Sequence[Record]], baseline: int) -> str:
    """The page of experiments and of checkpoints without experiments.

    Args:
        results: what `read_results` returns for one corpus, pair and test set; None without experiments.
        records: by the names of rows and checkpoints, the records of their seeds, of which the first model is shown.
        baseline: the number of the row that the others are compared with until the reader chooses another.
    """
    models = {name: next((one["model"] for one in seeds if one["model"]), None) for name, seeds in records.items()}
    figures = [*model_figures({name: model for name, model in models.items() if model})]
    scores: dict[str, Any] = {}
    if results is not None:
        [rows] = pool(results)
        test = rows[0].setting.test
        texts = {name: [one["text"] for one in seeds] for name, seeds in records.items() if "text" in seeds[0]}
        firsts = {result.directory: result for result in bleu_results(results)}
        systems = [read_texts(firsts[row.directories[0]]) for row in rows]
        [table] = report([rows]).tables
        # all seeds of a row have the same flags
        positions = [cell(seeds[0]["position_parameters"], ",") for seeds in texts.values()]
        empty = [""] * len(rows)
        columns = {**table.columns, "position parameters": positions, "difference": empty, "verdict": empty}
        tested = compared_with_each(results, rows)
        decided = next((one for one in tested if one.tested), None)
        scores = {
            "title": table.title,
            "shared": table.shared,
            "headers": list(columns),
            "rows": list(zip(*columns.values(), strict=True)),
            "notes": [*table.notes, *(interval_notes([decided]) if decided is not None else [])],
            "data": {"names": list(texts), "compared": list(map(cells_of, tested)), **compare_systems(systems)},
        }
        scored = {name: [one["tests"][test] for one in seeds] for name, seeds in texts.items()}
        figures = [length_figure(scored), *figures]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("posenc_experiments.analysis", "page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"cell": cell, "picture": picture}
    return environment.get_template("page.html").render(figures=figures, texts=TEXTS, scores=scores, baseline=baseline)


def cell(value: object, form: str = ".4g") -> str:
    """A number or a text of a table; a dash where there is none."""
    if value is None or value != value:
        return "–"
    return str(value) if isinstance(value, str | np.integer) else format(value, form)


def compared_with_each(results: pd.DataFrame, rows: Sequence[PooledRow]) -> list[ComparedTable]:
    """The rows with their tests against each of them."""
    seeds = jackknifed(results, rows, BLEU)
    return [compared(results, rows, row, Comparison(), seeds) for row in rows]


def cells_of(table: ComparedTable) -> list[tuple[str, str]]:
    """For each row the cells of its difference and its verdict."""
    return [
        ("baseline", "") if row.is_baseline else (difference(row), verdict(row) or "one seed") for row in table.rows
    ]
