"""Reports experiments beside the figures of a paper's table, from the files of the experiment directories alone."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from posenc_experiments.base.done import is_done
from posenc_experiments.base.files import write_text
from posenc_experiments.evaluation.metrics import (
    BLEU,
    CHRF,
    PAPER_METRICS,
    TOKENIZED,
    column_of,
    csv_name,
    tokenized_name,
)
from posenc_experiments.evaluation.paper_table import TableRow
from posenc_experiments.evaluation.pooling import groups_of, metrics_of, pooled_seeds
from posenc_experiments.evaluation.report import Report, Table, number
from posenc_experiments.evaluation.results import read_results
from posenc_experiments.evaluation.score import ScoreStage
from posenc_experiments.evaluation.tables import metric_columns, notes
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.training.train import TrainStage

#: a row of a paper's table with its scores so far: the columns of its file, those that `pooled_seeds` makes, "score" in
#: the paper's metric, "difference" (from the paper) and "missing" (which scores are missing, and why)
Line = dict[str, Any]


def make_line(row: TableRow, experiments: Sequence[Experiment], failed: Collection[Path] = ()) -> Line:
    """Reads the scores of a row so far; `failed` are the directories of experiments whose jobs failed in this call."""
    missing = {one.seed: reason for one in experiments if (reason := _why_missing(one, failed))}
    line: Line = {"seeds": []}
    if done := [one.directory for one in experiments if one.seed not in missing]:
        results = read_results(done)
        line |= pooled_seeds(results[results["test"] == row.test])
    score = line.get(BLEU if PAPER_METRICS[row.metric] is None else TOKENIZED)
    line |= {**row._asdict(), "shown": row.row, "score": score}
    line["difference"] = None if score is None or row.paper is None else score - row.paper
    several = len(experiments) > 1
    line["missing"] = "; ".join(f"seed {seed} {why}" if several else why for seed, why in missing.items())
    return line


def _why_missing(experiment: Experiment, failed: Collection[Path]) -> str:
    if is_done(experiment.directory, "score", ScoreStage().inputs(experiment)):
        return ""
    if experiment.directory in failed:
        return "failed"
    if TrainStage().is_done(experiment):
        return "not scored"
    return "not trained" if not experiment.train_log.is_file() else "training not finished"


def report(title: str, lines: Sequence[Line]) -> Report:
    """A table of the scores beside the paper's figures."""
    rows = pd.DataFrame([line for line in lines if line["seeds"]], dtype=object)
    return Report([Table(_columns(lines, rows), _notes(lines, rows), title)], _data(lines, rows))


def _columns(lines: Sequence[Line], rows: pd.DataFrame) -> dict[str, list[str]]:
    """The cells of each column; `rows` are the lines that have scores."""
    columns = {"row": [line["row"] for line in lines]}
    if len({line["pair"] for line in lines}) > 1:
        columns["pair"] = [line["pair"] for line in lines]
    last = {}
    if any(line["paper"] is not None for line in lines):
        decimals = 1 if "historical" in {line["metric"] for line in lines} else 2  # as in the papers
        last["paper"] = [number(line["paper"], f".{decimals}f") for line in lines]
        last["difference"] = [number(line["difference"], "+.2f") for line in lines]
    if any(line["missing"] for line in lines):
        last["missing"] = [line["missing"] for line in lines]
    return columns | metric_columns(rows, lines, (*columns, *last)) | last


def _notes(lines: Sequence[Line], rows: pd.DataFrame) -> list[str]:
    found = [f"Test set: {', '.join(dict.fromkeys(line['test'] for line in lines))}."]
    if kinds := dict.fromkeys(PAPER_METRICS[line["metric"]] for line in lines if line["paper"] is not None):
        names = [BLEU if kind is None else tokenized_name(kind) for kind in kinds]
        found.append(f"The paper's figures are compared with {' and '.join(names)}.")
    for group in groups_of(rows) if len(rows) else ():
        found += notes(group)
    for metric in metrics_of(rows):
        if rows[column_of(metric, "signature")].nunique() > 1:
            found.append(f"Warning: the {metric} signatures differ, so these scores are not comparable.")
    return list(dict.fromkeys(found))


def _data(lines: Sequence[Line], rows: pd.DataFrame) -> pd.DataFrame:
    """The data of the CSV."""
    metrics, errors = list(dict.fromkeys((BLEU, CHRF, TOKENIZED, *metrics_of(rows)))), ("", "interval", "spread")
    columns = ["row", "pair", "test", "conf", "experiment", "seeds", "metric", "score"]
    columns += [column_of(metric, what) for metric in metrics for what in errors]
    columns += ["paper", "difference", "missing", *(column_of(metric, "signature") for metric in metrics)]
    written = [line | {"seeds": " ".join(map(str, line["seeds"]))} for line in lines]
    return pd.DataFrame(written, columns=columns, dtype=object).rename(columns=csv_name)


def write_report(title: str, path: Path, lines: Sequence[Line]) -> str:
    """Writes the table as Markdown and CSV, PATH.md and PATH.csv, and returns the text for the terminal."""
    made = report(title, lines)
    files = [path.with_name(f"{path.name}.{kind}") for kind in ("md", "csv")]
    for file, style in zip(files, ("markdown", "csv"), strict=True):
        write_text(file, made.format(style))
    return f"\n{made.format('text')}\nWritten: {' and '.join(map(str, files))}"
