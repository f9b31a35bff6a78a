"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from markupsafe import Markup

from posenc_experiments.analysis.figures import Figure, length_figure, loss_figure, model_figures
from posenc_experiments.analysis.record import Record, versions
from posenc_experiments.analysis.systems import compare_systems
from posenc_experiments.analysis.texts import read_texts
from posenc_experiments.evaluation.comparison import notes, p_note
from posenc_experiments.evaluation.metrics import BLEU, BOOTSTRAP_SEED, CHRF
from posenc_experiments.evaluation.pooling import Comparison, compared, pool, row_names, scored, title
from posenc_experiments.evaluation.results import of_tests
from posenc_experiments.evaluation.significance import SAMPLES

HEADERS = ("experiment", "seeds", BLEU, CHRF, "position parameters", "parameters", "train words/s", "p")
#: the page's parts by the first words of their figures' keys
SECTIONS = {
    "by loss": "Length and loss",
    "attention": "Attention by layer and head",
    "logits": "Position logits by distance",
    "learned": "What was learned",
    "shift": "Shift test",
}


def render(
    results: pd.DataFrame | None, records: Mapping[Path, Record], checkpoints: Sequence[Record] = (), baseline: int = 0
) -> str:
    """The page of experiments and of checkpoints without experiments.

    Args:
        results: what `read_results` found of one corpus, pair and test set; None without experiments.
        records: those of the experiments, by their directories. Of a row's seeds, the first model is shown.
        checkpoints: records of bare checkpoints.
        baseline: the number of the row that p-values are against until the reader chooses another.
    """
    rows = pd.DataFrame({"directories": []}) if results is None else pool(results)
    names = [] if results is None else _different(row_names(rows))
    of_rows = [[records[directory] for directory in directories] for directories in rows["directories"]]
    found = [next((one["model"] for one in of_row if one["model"]), None) for of_row in of_rows]
    shown = _different([*names, *(record["checkpoint"] for record in checkpoints)])
    found += [record["model"] for record in checkpoints]
    models = {name: model for name, model in zip(shown, found, strict=True) if model is not None}
    figures = [*([] if results is None else _score_figures(rows, names, of_rows)), *model_figures(models)]
    sections = [
        (heading, [figure for figure in figures if figure.key.split("-")[0] in keys.split()])
        for keys, heading in SECTIONS.items()
    ]
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
    counts = {"experiments": len(rows), "trainings": len(records), "models whose attention was analysed": len(models)}
    test = "" if results is None else rows["test"].iloc[0]
    more_notes = [p_note(len(rows) - 1)] if len(rows) > 1 else []
    return environment.get_template("page.html").render(
        title=f"Analysis of {'checkpoints' if results is None else title(rows)}",
        subtitle=", ".join(f"{count} {what}" for what, count in counts.items() if count) + ".",
        sections=[section for section in sections if section[1]],
        headers=HEADERS,
        scores=[_row(*one) for one in zip(names, rows.to_dict("records"), of_rows, strict=True)],
        baseline=baseline,
        notes=[] if results is None else [*notes(rows), *more_notes],
        test=test,
        sentences="" if results is None else f"{of_rows[0][0]['text']['tests'][test]['sentences']:,}",
        data={} if results is None else _data(results, rows, names),
        style=Markup(files["css"]),
        script=Markup(files["js"]),
        versions=", ".join(f"{name} {version}" for name, version in versions().items()),
        settings="" if results is None else f"Bootstrap: {SAMPLES:,} samples, seed {BOOTSTRAP_SEED}.",
    )


def cell(value: Any, form: str = ".4g") -> str:
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


def _score_figures(rows: pd.DataFrame, names: Sequence[str], records: Sequence[Sequence[Record]]) -> list[Figure]:
    test = rows["test"].iloc[0]
    texts = {name: [record["text"] for record in seeds] for name, seeds in zip(names, records, strict=True)}
    figures = [
        length_figure({name: [text["tests"][test] for text in seeds] for name, seeds in texts.items()}),
        loss_figure({name: [text["valid_losses"] for text in seeds] for name, seeds in texts.items()}),
    ]
    return [figure for figure in figures if figure is not None]


def _row(name: str, row: dict[Any, Any], records: Sequence[Record]) -> dict[str, Any]:
    """A row of the table: its name, and the texts of its cells with the numbers that they are sorted by."""
    known = [found for record in records if (found := record["text"]["position_parameters"]) is not None]
    numbers = [statistics.fmean(known) if known else None, row["parameters"], row["words_per_second"]]
    cells = [
        (str(len(row["seeds"])), len(row["seeds"])),
        *((scored(row, metric) or "–", row.get(metric)) for metric in (BLEU, CHRF)),
        *((cell(number and float(number), ",.0f"), number) for number in numbers),
    ]
    return {"name": name, "cells": cells}


def _data(results: pd.DataFrame, rows: pd.DataFrame, names: Sequence[str]) -> dict[str, Any]:
    """What the page's script needs: by baseline, the p of each row; and the differences of each two systems."""
    found: dict[str, Any] = {"names": names, "p": p_values(results, rows)}
    if len(rows) > 1:
        firsts = {result.directory: result for result in of_tests(results)}
        found |= compare_systems([read_texts(firsts[directories[0]]) for directories in rows["directories"]])
    return found


def p_values(results: pd.DataFrame, rows: pd.DataFrame) -> list[list[float | str]]:
    """For each row as the baseline, the cells of all rows: p with Holm's correction, or why there is none."""
    found = []
    for baseline in range(len(rows)):
        tested = compared(results, rows, baseline, Comparison(rows["name"][baseline]))["holm_p_value"]
        cells: list[float | str] = ["one seed" if value is None else value for value in tested]
        found.append([*cells[:baseline], "baseline", *cells[baseline + 1 :]])
    return found
