"""The table beside the paper's figures, made from nothing but the files of its experiments' directories."""

import csv
import io
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate  # type: ignore[import-untyped]

from posenc_experiments.errors import RecipeError
from posenc_experiments.evaluation.results import Metric, Score, read_experiments
from posenc_experiments.workflow.experiment import Experiment
from posenc_experiments.workflow.plan import Plan, Planned
from posenc_experiments.workflow.rows import TableRow
from posenc_experiments.workflow.stages import atomic_path

METRIC_NAMES = {"historical": "historical BLEU", "lowercase": "lowercased BLEU", "sacrebleu": "BLEU"}
# The metrics of TEST.historical.json, and what [score] tokenized must be for them.
TOKENIZED = {"historical": "split", "lowercase": "lowercase"}
CSV_COLUMNS = (
    *("row", "pair", "test", "conf", "experiment", "seeds", "metric", "score", "interval", "spread"),
    *("bleu", "bleu_interval", "bleu_spread", "chrf", "paper", "difference", "missing"),
    *("historical_signature", "bleu_signature", "chrf_signature"),
)


@dataclass(frozen=True)
class Value:
    """One metric over the seeds that have it."""

    mean: float
    interval: float | None  # half of the 95 % bootstrap interval; of one seed
    spread: float | None  # the standard deviation over seeds (n - 1)
    signature: str

    def __str__(self) -> str:
        error = self.interval if self.spread is None else self.spread
        return f"{self.mean:.2f}" if error is None else f"{self.mean:.2f} ± {error:.2f}"


@dataclass(frozen=True)
class Line:
    """A row of the table as it is printed."""

    row: TableRow
    seeds: list[int]  # that were scored
    score: Value | None  # by the metric that the paper used
    bleu: Value | None
    chrf: Value | None
    missing: str  # why something is; empty if nothing is

    @property
    def difference(self) -> float | None:
        return None if self.score is None or self.row.paper is None else self.score.mean - self.row.paper


def make_lines(plan: Plan, failed: Iterable[Path] = ()) -> list[Line]:
    """Reads what is there; `failed` are the directories of experiments whose jobs failed just now."""
    return [_make_line(planned, set(failed)) for planned in plan.rows]


def _make_line(planned: Planned, failed: set[Path]) -> Line:
    row, scores, missing = planned.row, [], []
    for experiment in planned.experiments:
        reason = _why_missing(experiment, failed)
        if reason:
            missing.append(reason if len(planned.experiments) == 1 else f"seed {experiment.seed} {reason}")
        else:
            scores.append(_read(experiment, row.test))
    bleu: list[Metric | None] = [score.bleu for score in scores]
    value = _pool(bleu)
    if row.metric in TOKENIZED:
        made = planned.experiments[0].run.recipe.score.tokenized == TOKENIZED[row.metric]
        value = _pool([score.historical if made else None for score in scores])
    if scores and value is None:
        missing.append(f"no {METRIC_NAMES[row.metric]}: set 'tokenized = {TOKENIZED[row.metric]}' in [score]")
    return Line(
        row=row,
        seeds=[score.seed for score in scores],
        score=value,
        bleu=_pool(bleu),
        chrf=_pool([score.chrf for score in scores]),
        missing="; ".join(missing),
    )


def _why_missing(experiment: Experiment, failed: set[Path]) -> str:
    markers = experiment.markers
    if markers.is_done("score", experiment.score_inputs()):
        return ""
    if experiment.directory in failed:
        return "failed"
    if markers.is_done("train", experiment.train_inputs()):
        return "not scored"
    return "not trained" if not experiment.train_log.is_file() else "training not finished"


def _read(experiment: Experiment, test: str) -> Score:
    try:
        return next(score for score in read_experiments([experiment.directory]) if score.test == test)
    except RecipeError as error:
        raise RecipeError(str(error)) from None
    except StopIteration:
        raise RecipeError(f"{experiment.test_file(test, 'sacrebleu.json')} is missing: run the stage score.") from None


def _pool(metrics: list[Metric | None]) -> Value | None:
    known = [metric for metric in metrics if metric is not None]
    if not known or len(known) < len(metrics):
        return None
    scores = [metric.score for metric in known]
    several = len(known) > 1
    return Value(
        mean=statistics.fmean(scores),
        interval=None if several else known[0].interval,
        spread=statistics.stdev(scores) if several else None,
        signature=" and ".join(dict.fromkeys(metric.signature for metric in known)),
    )


def _cells(lines: list[Line]) -> tuple[list[str], list[list[str]]]:
    """Headers and cells; a column that would be empty or say the same twice is left out."""
    pairs = len({line.row.pair for line in lines}) > 1
    metrics = {line.row.metric for line in lines}
    tokenized = bool(metrics & TOKENIZED.keys())
    decimals = 1 if "historical" in metrics else 2  # as the papers print it
    paper = any(line.row.paper is not None for line in lines)
    missing = any(line.missing for line in lines)
    headers = ["row", *(["pair"] if pairs else []), METRIC_NAMES[metrics.pop()] if len(metrics) == 1 else "score"]
    headers += [*(["SacreBLEU"] if tokenized else []), "chrF", *(["paper", "difference"] if paper else [])]
    headers += ["missing"] if missing else []
    cells = []
    for line in lines:
        cell = [line.row.label, *([line.row.pair] if pairs else []), str(line.score or "")]
        cell += [*([str(line.bleu or "")] if tokenized else []), str(line.chrf or "")]
        if paper:
            cell += [_number(line.row.paper, f".{decimals}f"), _number(line.difference, "+.2f")]
        cells.append([*cell, *([line.missing] if missing else [])])
    return headers, cells


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _notes(lines: list[Line]) -> list[str]:
    notes = [f"Test set: {', '.join(dict.fromkeys(line.row.test for line in lines))}."]
    values = [value for line in lines for value in (line.score, line.bleu, line.chrf) if value is not None]
    if any(value.interval is not None for value in values):
        notes.append("±: 95 % confidence interval (bootstrap) of one seed.")
    if any(value.spread is not None for value in values):
        most = max(len(line.seeds) for line in lines)
        notes.append(f"Several seeds (up to {most}): mean ± standard deviation over the seeds.")
    metrics = dict.fromkeys(line.row.metric for line in lines)
    if any(line.row.paper is not None for line in lines):
        notes.append(f"The paper's figures are set beside {' and '.join(METRIC_NAMES[name] for name in metrics)}.")
    columns: list[tuple[str, list[Value | None]]] = [
        *((METRIC_NAMES[name], [line.score for line in lines if line.row.metric == name]) for name in TOKENIZED),
        ("SacreBLEU" if metrics.keys() & TOKENIZED.keys() else "BLEU", [line.bleu for line in lines]),
        ("chrF", [line.chrf for line in lines]),
    ]
    for label, found in columns:
        signatures = dict.fromkeys(value.signature for value in found if value is not None)
        notes += [f"{label}: {signature}" for signature in signatures]
        if len(signatures) > 1:
            notes.append(f"Warning: the {label} signatures differ, so these scores are not comparable.")
    return notes


def as_text(title: str, lines: list[Line]) -> str:
    """For a terminal."""
    return f"{title}\n\n{_render(lines, 'simple')}\n\n" + "".join(f"{note}\n" for note in _notes(lines))


def as_markdown(title: str, lines: list[Line]) -> str:
    """The same as Markdown."""
    return f"**{title}**\n\n{_render(lines, 'github')}\n\n" + "".join(f"- {note}\n" for note in _notes(lines))


def _render(lines: list[Line], style: str) -> str:
    headers, cells = _cells(lines)
    align = ["left" if header in ("row", "pair", "missing") else "right" for header in headers]
    return tabulate(cells, headers, tablefmt=style, disable_numparse=True, colalign=align)


def as_csv(lines: list[Line]) -> str:
    """One line a row, every number unrounded and on its own."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for line in lines:
        row = line.row
        writer.writerow(
            [
                *(row.label, row.pair, row.test, row.conf, row.experiment, " ".join(map(str, line.seeds)), row.metric),
                *_numbers(line.score),
                *_numbers(line.bleu),
                line.chrf.mean if line.chrf else None,
                *(row.paper, line.difference, line.missing),
                line.score.signature if line.score and row.metric in TOKENIZED else None,
                *(value.signature if value else None for value in (line.bleu, line.chrf)),
            ]
        )
    return text.getvalue()


def _numbers(value: Value | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if value is None else (value.mean, value.interval, value.spread)


def write_report(plan: Plan, lines: list[Line]) -> list[Path]:
    """Writes OUTPUT/CORPUS/tables/NAME.{md,csv}."""
    folder = plan.corpus_dir / "tables"
    texts = {"md": as_markdown(plan.table.title, lines), "csv": as_csv(lines)}
    for kind, text in texts.items():
        with atomic_path(folder / f"{plan.table.name}.{kind}") as temporary:
            temporary.write_text(text, encoding="utf-8")
    return [folder / f"{plan.table.name}.{kind}" for kind in texts]
