"""A paper's table beside the paper's figures, made from nothing but the files of its experiments' directories."""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate  # type: ignore[import-untyped]

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import atomic_path
from posenc_experiments.evaluation.pooling import Row
from posenc_experiments.evaluation.results import Metric, Score, read_experiments
from posenc_experiments.evaluation.tables import with_error
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.workflow.rows import Planned, Table, TableRow

METRIC_NAMES = {"historical": "historical BLEU", "lowercase": "lowercased BLEU", "sacrebleu": "BLEU"}
# The metrics of TEST.historical.json, and what [score] tokenized must be for them.
TOKENIZED = {"historical": "split", "lowercase": "lowercase"}
CSV_COLUMNS = (
    *("row", "pair", "test", "conf", "experiment", "seeds", "metric", "score", "interval", "spread"),
    *("bleu", "bleu_interval", "bleu_spread", "chrf", "paper", "difference", "missing"),
    *("historical_signature", "bleu_signature", "chrf_signature"),
)
Number = tuple[float | None, float | None, float | None]  # a mean, half of one seed's interval, the spread over seeds
NOTHING: Number = (None, None, None)


@dataclass(frozen=True)
class Line:
    """A row of the table as it is printed."""

    row: TableRow
    scored: Row | None  # over the seeds that were scored
    has_metric: bool  # whether they have the metric that the paper used
    missing: str  # why something is; empty if nothing is

    @property
    def bleu(self) -> Number:
        return (
            NOTHING if self.scored is None else (self.scored.bleu, self.scored.bleu_interval, self.scored.bleu_spread)
        )

    @property
    def historical(self) -> Number:
        if self.scored is None:
            return NOTHING
        return self.scored.historical, self.scored.historical_interval, self.scored.historical_spread

    @property
    def score(self) -> Number:
        """By the metric that the paper used."""
        if self.row.metric not in TOKENIZED:
            return self.bleu
        return self.historical if self.has_metric else NOTHING

    @property
    def difference(self) -> float | None:
        mean = self.score[0]
        return None if mean is None or self.row.paper is None else mean - self.row.paper


def make_lines(rows: Iterable[Planned], failed: Iterable[Path] = ()) -> list[Line]:
    """Reads what is there; `failed` are the directories of experiments whose jobs failed just now."""
    return [_make_line(planned, set(failed)) for planned in rows]


def _make_line(planned: Planned, failed: set[Path]) -> Line:
    row, scores, missing = planned.row, [], []
    for experiment in planned.experiments:
        reason = _why_missing(experiment, failed)
        if reason:
            missing.append(reason if len(planned.experiments) == 1 else f"seed {experiment.seed} {reason}")
        else:
            scores.append(_read(experiment, row.test))
    scored = Row(tuple(scores)) if scores else None
    has_metric = scored is not None
    if scored is not None and row.metric in TOKENIZED:
        made = planned.experiments[0].run.recipe.score.tokenized == TOKENIZED[row.metric]
        has_metric = made and scored.historical is not None
        if not has_metric:
            missing.append(f"no {METRIC_NAMES[row.metric]}: set 'tokenized = {TOKENIZED[row.metric]}' in [score]")
    return Line(row, scored, has_metric, "; ".join(missing))


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
    for score in read_experiments([experiment.directory]):
        if score.test == test:
            return score
    raise RecipeError(f"{experiment.test_file(test, 'sacrebleu.json')} is missing: run the stage score.")


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
        cell = [line.row.label, *([line.row.pair] if pairs else []), _shown(line.score)]
        cell += [*([_shown(line.bleu)] if tokenized else [])]
        cell.append(_number(None if line.scored is None else line.scored.chrf, ".2f"))
        if paper:
            cell += [_number(line.row.paper, f".{decimals}f"), _number(line.difference, "+.2f")]
        cells.append([*cell, *([line.missing] if missing else [])])
    return headers, cells


def _shown(number: Number) -> str:
    mean, interval, spread = number
    return "" if mean is None else with_error(mean, interval if spread is None else spread)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _notes(lines: list[Line]) -> list[str]:
    notes = [f"Test set: {', '.join(dict.fromkeys(line.row.test for line in lines))}."]
    if any(line.bleu[1] is not None for line in lines):
        notes.append("±: 95 % confidence interval (bootstrap) of one seed.")
    if any(line.bleu[2] is not None for line in lines):
        most = max(len(line.scored.scores) for line in lines if line.scored is not None)
        notes.append(f"Several seeds (up to {most}): mean ± standard deviation over the seeds.")
    metrics = dict.fromkeys(line.row.metric for line in lines)
    if any(line.row.paper is not None for line in lines):
        notes.append(f"The paper's figures are set beside {' and '.join(METRIC_NAMES[name] for name in metrics)}.")
    columns = {"SacreBLEU" if metrics.keys() & TOKENIZED.keys() else "BLEU": lines, "chrF": lines}
    tokenized = {METRIC_NAMES[name]: [line for line in lines if line.row.metric == name] for name in TOKENIZED}
    for label, of_lines in {**tokenized, **columns}.items():
        signatures = list(dict.fromkeys(metric.signature for line in of_lines for metric in _metrics(line, label)))
        notes += [f"{label}: {signature}" for signature in signatures]
        if len(signatures) > 1:
            notes.append(f"Warning: the {label} signatures differ, so these scores are not comparable.")
    return notes


def _metrics(line: Line, label: str) -> list[Metric]:
    """What stands in a column of the table, of each seed."""
    scores = () if line.scored is None else line.scored.scores
    if label in METRIC_NAMES.values() and label != "BLEU":
        found = [score.historical if line.score[0] is not None else None for score in scores]
    else:
        found = [score.chrf if label == "chrF" else score.bleu for score in scores]
    return [metric for metric in found if metric is not None]


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
        row, scored = line.row, line.scored
        seeds = [] if scored is None else [score.seed for score in scored.scores]
        of_metrics = [_metrics(line, label)[:1] for label in (METRIC_NAMES[row.metric], "BLEU", "chrF")]
        signatures = [found[0].signature if found else None for found in of_metrics]
        if row.metric not in TOKENIZED:
            signatures[0] = None
        writer.writerow(
            [
                *(row.label, row.pair, row.test, row.conf, row.experiment, " ".join(map(str, seeds)), row.metric),
                *(*line.score, *line.bleu, None if scored is None else scored.chrf),
                *(row.paper, line.difference, line.missing, *signatures),
            ]
        )
    return text.getvalue()


def report(table: Table, rows: list[Planned], failed: Iterable[Path]) -> str:
    """Writes OUTPUT/CORPUS/tables/NAME.{md,csv}, and returns what a terminal shows."""
    run = rows[0].experiments[0].run
    lines = make_lines(rows, failed)
    texts = {"md": as_markdown(table.title, lines), "csv": as_csv(lines)}
    files = [run.output_dir / run.recipe.corpus.name / "tables" / f"{table.name}.{kind}" for kind in texts]
    for file, text in zip(files, texts.values(), strict=True):
        with atomic_path(file) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return f"\n{as_text(table.title, lines)}\nWritten: {' and '.join(map(str, files))}"
