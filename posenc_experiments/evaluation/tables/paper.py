"""Reports experiments beside the figures of a paper's table, from the files of the experiment directories alone."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from posenc_experiments.base.done import is_done
from posenc_experiments.base.files import write_text
from posenc_experiments.evaluation.metrics import BLEU, CHRF, PAPER_METRICS, TOKENIZED, csv_column, tokenized_name
from posenc_experiments.evaluation.results import read_results
from posenc_experiments.evaluation.scores.score import ScoreStage
from posenc_experiments.evaluation.statistics.pooling import PooledRow, pooled_seeds, signatures_of
from posenc_experiments.evaluation.tables.comparisons import metric_cells, metric_columns, notes
from posenc_experiments.evaluation.tables.paper_table import TableRow
from posenc_experiments.evaluation.tables.report import Report, Table, number
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.training.train import TrainStage


@dataclass(frozen=True)
class Line:
    """A row of a paper's table with its scores so far."""

    row: TableRow
    missing: str  # which scores are missing, and why
    pooled: PooledRow | None  # None without a score

    @property
    def score(self) -> float | None:
        """The score in the paper's metric."""
        metric = BLEU if PAPER_METRICS[self.row.metric] is None else TOKENIZED
        return self.pooled.scores[metric].mean if self.pooled and metric in self.pooled.scores else None

    @property
    def difference(self) -> float | None:
        """The difference from the paper."""
        return None if self.score is None or self.row.paper is None else self.score - self.row.paper


def make_line(row: TableRow, experiments: Sequence[Experiment], failed: Collection[Path] = ()) -> Line:
    """Reads the scores of a row so far; `failed` are the directories of experiments whose jobs failed in this call."""
    missing = {one.seed: reason for one in experiments if (reason := _why_missing(one, failed))}
    pooled = None
    if done := [one.directory for one in experiments if one.seed not in missing]:
        results = read_results(done)
        pooled = replace(pooled_seeds(results[results["test"] == row.test]), shown=row.row)
    several = len(experiments) > 1
    return Line(row, "; ".join(f"seed {seed} {why}" if several else why for seed, why in missing.items()), pooled)


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
    return Report([Table(_columns(lines), _notes(lines), title)], _data(lines))


def _pooled(lines: Sequence[Line]) -> list[PooledRow]:
    return [line.pooled for line in lines if line.pooled is not None]


def _columns(lines: Sequence[Line]) -> dict[str, list[str]]:
    """The cells of each column."""
    rows = [line.row for line in lines]
    columns = {"row": [row.row for row in rows]}
    if len({row.pair for row in rows}) > 1:
        columns["pair"] = [row.pair for row in rows]
    last = {}
    if any(row.paper is not None for row in rows):
        decimals = 1 if "historical" in {row.metric for row in rows} else 2  # as in the papers
        last["paper"] = [number(row.paper, f".{decimals}f") for row in rows]
        last["difference"] = [number(line.difference, "+.2f") for line in lines]
    if any(line.missing for line in lines):
        last["missing"] = [line.missing for line in lines]
    return columns | metric_columns([line.pooled for line in lines], (*columns, *last)) | last


def _notes(lines: Sequence[Line]) -> list[str]:
    texts = [f"Test set: {', '.join(dict.fromkeys(line.row.test for line in lines))}."]
    if kinds := dict.fromkeys(PAPER_METRICS[line.row.metric] for line in lines if line.row.paper is not None):
        names = [BLEU if kind is None else tokenized_name(kind) for kind in kinds]
        texts.append(f"The paper's figures are compared with {' and '.join(names)}.")
    rows = _pooled(lines)
    for title in dict.fromkeys(row.setting.title for row in rows):
        texts += notes([row for row in rows if row.setting.title == title])
    for metric, several in signatures_of(rows).items():
        if len(several) > 1:
            texts.append(f"Warning: the {metric} signatures differ, so these scores are not comparable.")
    return list(dict.fromkeys(texts))


def _data(lines: Sequence[Line]) -> pd.DataFrame:
    """The data of the CSV."""
    metrics = list(dict.fromkeys((BLEU, CHRF, TOKENIZED, *signatures_of(_pooled(lines)))))
    columns = ["row", "pair", "test", "conf", "experiment", "seeds", "metric", "score"]
    columns += [csv_column(metric, what) for metric in metrics for what in ("", "interval", "spread")]
    columns += ["paper", "difference", "missing", *(csv_column(metric, "signature") for metric in metrics)]
    cells = [
        line.row._asdict()
        | {"seeds": " ".join(map(str, line.pooled.seeds if line.pooled else ())), "missing": line.missing}
        | {"score": line.score, "difference": line.difference}
        | (metric_cells(line.pooled) if line.pooled else {})
        for line in lines
    ]
    return pd.DataFrame(cells, columns=columns, dtype=object)


def write_report(title: str, path: Path, lines: Sequence[Line]) -> str:
    """Writes the table as Markdown and CSV, PATH.md and PATH.csv, and returns the text for the terminal."""
    made = report(title, lines)
    files = [path.with_name(f"{path.name}.{kind}") for kind in ("md", "csv")]
    for file, style in zip(files, ("markdown", "csv"), strict=True):
        write_text(file, made.format(style))
    return f"\n{made.format('text')}\nWritten: {' and '.join(map(str, files))}"
