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
from posenc_experiments.evaluation.comparison import difference, p_note, report
from posenc_experiments.evaluation.names import split_shared
from posenc_experiments.evaluation.pooling import Comparison, compared, pool, title
from posenc_experiments.evaluation.results import of_tests


def render(results: pd.DataFrame | None, records: Mapping[str, Sequence[Record]], baseline: int) -> str:
    """The page of experiments and of checkpoints without experiments.

    Args:
        results: what `read_results` found of one corpus, pair and test set; None without experiments.
        records: by the names of rows and checkpoints, the records of their seeds, of which the first model is shown.
        baseline: the number of the row that p-values are against until the reader chooses another.
    """
    found = {name: next((one["model"] for one in seeds if one["model"]), None) for name, seeds in records.items()}
    figures = [*model_figures({name: model for name, model in found.items() if model})]
    scores: dict[str, Any] = {}
    if results is not None:
        rows = pool(results)
        test = rows["test"].iloc[0]
        texts = {name: [one["text"] for one in seeds] for name, seeds in records.items() if "text" in seeds[0]}
        firsts = {result.directory: result for result in of_tests(results)}
        systems = [read_texts(firsts[directories[0]]) for directories in rows["directories"]]
        [table] = report(rows).tables
        # all seeds of a row have the same flags
        positions = [cell(seeds[0]["position_parameters"], ",") for seeds in texts.values()]
        columns = {
            **table.columns,
            "position parameters": positions,
            "difference": [""] * len(rows),
            "p": [""] * len(rows),
        }
        tests = against_each(results, rows)
        scores = {
            "title": title(rows),
            "shared": split_shared(rows["name"])[1],
            "headers": list(columns),
            "rows": list(zip(*columns.values(), strict=True)),
            "notes": [*table.notes, *(notes_on_tests(tests, len(rows) - 1) if len(rows) > 1 else [])],
            "data": {"names": list(texts), "tests": tests, **compare_systems(systems)},
        }
        of_test = {name: [one["tests"][test] for one in seeds] for name, seeds in texts.items()}
        figures = [length_figure(of_test), *figures]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("posenc_experiments.analysis", "page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"cell": cell, "picture": picture}
    return environment.get_template("page.html").render(
        figures=figures,
        texts=TEXTS,
        scores=scores,
        baseline=baseline,
    )


def cell(value: Any, form: str = ".4g") -> str:
    """A number or a text of a table; a dash where there is none."""
    if value is None or value != value:
        return "–"
    return str(value) if isinstance(value, str | np.integer) else format(value, form)


def against_each(results: pd.DataFrame, rows: pd.DataFrame) -> list[list[tuple[str, float | str]]]:
    """For each row as the baseline, the cells of all rows: the difference, and p or why there is none.

    The difference has its interval, p Holm's correction.
    """
    found = []
    for baseline in range(len(rows)):
        tested = compared(results, rows, baseline, Comparison(rows["shown"][baseline])).to_dict("records")
        cells = [(difference(row), "one seed" if (p := row["holm_p_value"]) is None else p) for row in tested]
        found.append([*cells[:baseline], ("", "baseline"), *cells[baseline + 1 :]])
    return found


def notes_on_tests(tests: list[list[tuple[str, float | str]]], count: int) -> list[str]:
    """What the cells of `against_each` mean, for so many tests against a baseline."""
    intervals = "; [...]: its 95 % interval, for other seeds and test sets; *: p <= 0.05"
    has_intervals = any("[" in shown for cells in tests for shown, _ in cells)
    return [f"difference: BLEU less that of the baseline{intervals if has_intervals else ''}.", p_note(count)]
