"""Reports experiments beside the figures of a paper's table, from the files of the experiment directories alone."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.languages import unit
from posenc_experiments.base.markers import atomic_path
from posenc_experiments.evaluation.by_words import Bucket, score_buckets
from posenc_experiments.evaluation.metrics import BLEU, CHRF, PAPER_METRICS, TOKENIZED, paper_name
from posenc_experiments.evaluation.paper_table import PaperTable, Planned, TableRow
from posenc_experiments.evaluation.pooling import Pooled, Row, mean
from posenc_experiments.evaluation.report import Column, Report, Table, number
from posenc_experiments.evaluation.results import Score, read_experiments
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.layout import SACREBLEU


@dataclass(frozen=True)
class Line:
    """A row of the printed table."""

    row: TableRow
    scored: Row | None  # pooled over the seeds that were scored; None if none was
    has_tokenized: bool  # whether these have the kind of tokenized BLEU that the paper reports
    missing: str  # which scores are missing, and why; empty if none are
    buckets: dict[str, Bucket]  # by range of source lengths; empty if the row has none, or no score

    @property
    def metric(self) -> str:
        """The metric that the paper used."""
        return BLEU if PAPER_METRICS[self.row.metric] is None else TOKENIZED

    def pooled(self, metric: str) -> Pooled | None:
        if self.scored is None or (metric == TOKENIZED and not self.has_tokenized):
            return None
        return self.scored.pooled(metric)

    @property
    def score(self) -> Pooled | None:
        """The score in the metric that the paper used."""
        return self.pooled(self.metric)

    @property
    def difference(self) -> float | None:
        return None if self.score is None or self.row.paper is None else self.score.mean - self.row.paper

    def signatures(self, metric: str) -> list[str]:
        """The signature of each seed's score."""
        scores = () if self.scored is None or self.pooled(metric) is None else self.scored.scores
        return [score.metrics[metric].signature for score in scores if metric in score.metrics]


def make_lines(rows: Iterable[Planned], failed: Iterable[Path] = ()) -> list[Line]:
    """Reads the scores so far; `failed` are the directories of experiments whose jobs failed in this call."""
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
    kind, computed = PAPER_METRICS[row.metric], planned.experiments[0].run.recipe.score.tokenized
    has_tokenized = scored is not None and kind == computed and scored.pooled(TOKENIZED) is not None
    if scored is not None and kind is not None and not has_tokenized:
        missing.append(f"no {paper_name(row.metric)}: set 'tokenized = {kind}' in `score`")
    buckets = score_buckets(scores, row.words) if scores and row.words else {}
    return Line(row, scored, has_tokenized, "; ".join(missing), buckets)


def _why_missing(experiment: Experiment, failed: set[Path]) -> str:
    if experiment.is_done("score"):
        return ""
    if experiment.directory in failed:
        return "failed"
    if experiment.is_done("train"):
        return "not scored"
    return "not trained" if not experiment.train_log.is_file() else "training not finished"


def _read(experiment: Experiment, test: str) -> Score:
    for score in read_experiments([experiment.directory]):
        if score.test == test:
            return score
    raise RecipeError(f"{experiment.test_file(test, SACREBLEU)} is missing: run the stage score.")


def report(title: str, lines: list[Line]) -> Report:
    """A table of the scores beside the paper's figures."""
    return Report(
        [Table(lines, _columns(lines), _notes(lines), title)], [_record(line, _ranges(lines)) for line in lines]
    )


def _columns(lines: list[Line]) -> list[Column[Line]]:
    metrics = {line.row.metric for line in lines}
    decimals = 1 if "historical" in metrics else 2  # as in the papers
    paper = any(line.row.paper is not None for line in lines)
    return [
        Column("row", lambda line: line.row.label, left=True),
        Column("pair", lambda line: line.row.pair, left=True, shown=len({line.row.pair for line in lines}) > 1),
        Column(paper_name(min(metrics)) if len(metrics) == 1 else "score", lambda line: str(line.score or "")),
        Column("SacreBLEU", lambda line: str(line.pooled(BLEU) or ""), shown=_are_tokenized(lines)),
        *(_bucket_column(words, lines) for words in _ranges(lines)),
        Column(CHRF, lambda line: number(mean(line.pooled(CHRF)), ".2f")),
        Column("paper", lambda line: number(line.row.paper, f".{decimals}f"), shown=paper),
        Column("difference", lambda line: number(line.difference, "+.2f"), shown=paper),
        Column("missing", lambda line: line.missing, left=True, shown=any(line.missing for line in lines)),
    ]


def _ranges(lines: list[Line]) -> list[str]:
    """The ranges of source lengths of all rows."""
    return list(dict.fromkeys(str(words) for line in lines for words in line.row.words))


def _unit(line: Line) -> str:
    return unit(line.row.pair.split("-")[0])


def _bucket_column(words: str, lines: list[Line]) -> Column[Line]:
    def cell(line: Line) -> str:
        return str(line.buckets[words].bleu or "") if words in line.buckets else ""

    units = dict.fromkeys(_unit(line) for line in lines if words in map(str, line.row.words))
    return Column(f"{words} {' or '.join(units)}", cell)


def _are_tokenized(lines: list[Line]) -> bool:
    """Whether a paper's figure is a tokenized BLEU, so that SacreBLEU's BLEU needs a column of its own."""
    return any(line.metric == TOKENIZED for line in lines)


def _notes(lines: list[Line]) -> list[str]:
    notes = [f"Test set: {', '.join(dict.fromkeys(line.row.test for line in lines))}."]
    scored = [line.scored for line in lines if line.scored is not None]
    if any(row.bleu.interval is not None for row in scored):
        notes.append("±: 95 % confidence interval (bootstrap) of one seed.")
    most = max((len(row.scores) for row in scored), default=0)
    if most > 1:
        notes.append(f"Several seeds (up to {most}): mean ± standard deviation over the seeds.")
    for line in {(line.row.pair, line.row.test): line for line in lines if line.buckets}.values():
        counts = ", ".join(f"{bucket.sentences:,} with {words}" for words, bucket in line.buckets.items())
        notes.append(
            f"{_unit(line).capitalize()}: SacreBLEU's BLEU of the sentences whose source has that many; "
            f"{line.row.test} has {counts}."
        )
    names = dict.fromkeys(paper_name(line.row.metric) for line in lines)
    if any(line.row.paper is not None for line in lines):
        notes.append(f"The paper's figures are compared with {' and '.join(names)}.")
    shown = [
        (paper_name(name), TOKENIZED, [line for line in lines if line.row.metric == name])
        for name, kind in PAPER_METRICS.items()
        if kind is not None
    ]
    shown += [("SacreBLEU" if _are_tokenized(lines) else BLEU, BLEU, lines), (CHRF, CHRF, lines)]
    for label, metric, of_lines in shown:
        signatures = list(dict.fromkeys(signature for line in of_lines for signature in line.signatures(metric)))
        notes += [f"{label}: {signature}" for signature in signatures]
        if len(signatures) > 1:
            notes.append(f"Warning: the {label} signatures differ, so these scores are not comparable.")
    return notes


def _record(line: Line, ranges: list[str]) -> dict[str, object]:
    row, scores = line.row, line.scored.scores if line.scored else ()
    nothing = (None, None, None)
    signatures = {metric: next(iter(line.signatures(metric)), None) for metric in (TOKENIZED, BLEU, CHRF)}
    record: dict[str, object] = {
        "row": row.label,
        **{name: getattr(row, name) for name in ("pair", "test", "conf", "experiment")},
        "seeds": " ".join(str(score.seed) for score in scores),
        "metric": row.metric,
        **dict(zip(("score", "interval", "spread"), line.score or nothing, strict=True)),
        **dict(zip(("bleu", "bleu_interval", "bleu_spread"), line.pooled(BLEU) or nothing, strict=True)),
        "chrf": mean(line.pooled(CHRF)),
        "paper": row.paper,
        "difference": line.difference,
        "missing": line.missing,
        "historical_signature": signatures[TOKENIZED],
        "bleu_signature": signatures[BLEU],
        "chrf_signature": signatures[CHRF],
    }
    for words in ranges:
        record |= _bucket_record(words, line.buckets.get(words))
    return record


def _bucket_record(words: str, bucket: Bucket | None) -> dict[str, object]:
    """The cells of a row for a range of source lengths; None where the row has no such range or score."""
    names = [f"{name} {words}" for name in ("bleu", "bleu_interval", "bleu_spread")]
    sentences, scores = (bucket.sentences, bucket.bleu) if bucket is not None else (None, None)
    return {f"sentences {words}": sentences, **dict(zip(names, scores or (None, None, None), strict=True))}


def write_report(table: PaperTable, rows: list[Planned], failed: Iterable[Path]) -> str:
    """Writes OUTPUT/CORPUS/tables/NAME.{md,csv}, and returns the text for the terminal."""
    run = rows[0].experiments[0].run
    made = report(table.title, make_lines(rows, failed))
    files = []
    for kind, style in (("md", "markdown"), ("csv", "csv")):
        files.append(run.results_dir / "tables" / f"{table.name}.{kind}")
        with atomic_path(files[-1]) as temporary:
            temporary.write_text(made.format(style), encoding="utf-8")
    return f"\n{made.format('text')}\nWritten: {' and '.join(map(str, files))}"
