"""Reports experiments beside the figures of a paper's table, from the files of the experiment directories alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.languages import length, unit
from posenc_experiments.base.markers import atomic_path
from posenc_experiments.evaluation.metrics import BLEU, CHRF, PAPER_METRICS, TOKENIZED, paper_name, sacrebleu_metric
from posenc_experiments.evaluation.paper_table import PaperTable, Planned, TableRow, WordRange
from posenc_experiments.evaluation.pooling import pooled_seeds, scored
from posenc_experiments.evaluation.report import Report, Table, number
from posenc_experiments.evaluation.results import of_tests, read_results, read_test_texts
from posenc_experiments.evaluation.significance import resample_lines
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.layout import SACREBLEU


@dataclass(frozen=True)
class Line:
    """A row of the printed table."""

    row: TableRow
    scored: dict[str, Any]  # pooled over the seeds that were scored; also BLEU by range of source lengths
    missing: str  # which scores are missing, and why; empty if none are
    sentences: dict[str, int]  # by range of source lengths; empty if the row has none, or no score

    @property
    def metric(self) -> str:
        """The metric that the paper used."""
        return BLEU if PAPER_METRICS[self.row.metric] is None else TOKENIZED

    @property
    def difference(self) -> float | None:
        """The score in the paper's metric less that of the paper."""
        score = self.scored.get(self.metric)
        return None if score is None or self.row.paper is None else score - self.row.paper

    @property
    def unit(self) -> str:
        """What the lengths of sources count."""
        return unit(self.row.pair.split("-")[0])


def make_line(planned: Planned, failed: set[Path]) -> Line:
    """Reads the scores of a row so far; `failed` are the directories of experiments whose jobs failed in this call."""
    row, parts, missing = planned.row, [], []
    for experiment in planned.experiments:
        reason = _why_missing(experiment, failed)
        if reason:
            missing.append(reason if len(planned.experiments) == 1 else f"seed {experiment.seed} {reason}")
        else:
            parts.append(_read(experiment, row.test))
    scores: dict[str, Any] = {}
    sentences: dict[str, int] = {}
    if parts:
        results = pd.concat(parts)
        kind, computed = PAPER_METRICS[row.metric], planned.experiments[0].run.recipe.score.tokenized
        if kind != computed or TOKENIZED not in set(results["metric"]):  # not the kind that the paper reports
            results = results[results["metric"] != TOKENIZED]
            if kind is not None:
                missing.append(f"no {paper_name(row.metric)}: set 'tokenized = {kind}' in `score`")
        of_words = [one for words in row.words for one in _of_words(results, words, sentences)]
        scores = pooled_seeds(pd.concat([results, pd.DataFrame(of_words)]) if of_words else results)
        for name, of_metric in results.groupby("metric"):
            scores[f"{name} signatures"] = list(dict.fromkeys(of_metric["signature"]))
    return Line(row, scores, "; ".join(missing), sentences)


def _why_missing(experiment: Experiment, failed: set[Path]) -> str:
    if experiment.is_done("score"):
        return ""
    if experiment.directory in failed:
        return "failed"
    if experiment.is_done("train"):
        return "not scored"
    return "not trained" if not experiment.train_log.is_file() else "training not finished"


def _read(experiment: Experiment, test: str) -> pd.DataFrame:
    results = read_results([experiment.directory])
    of_test = results[results["test"] == test]
    if not len(of_test):
        raise RecipeError(f"{experiment.test_file(test, SACREBLEU)} is missing: run the stage score.")
    return of_test


def _of_words(results: pd.DataFrame, words: WordRange, sentences: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Results on the sentences whose source has so many words, as a metric, computed as BLEU of the whole test set is.

    Args:
        sentences: gets the number of these sentences.

    Raises:
        RecipeError: a file is missing, or those of a test set have different numbers of lines.
    """
    for result in of_tests(results):
        texts = zip(*read_test_texts(result), strict=True)
        inside = [lines for lines in texts if length(lines[0], result.pair.split("-")[0]) in words]
        sentences[str(words)] = len(inside)
        if inside:
            _, references, hypotheses = zip(*inside, strict=True)
            found = resample_lines(sacrebleu_metric(BLEU, result.signature), hypotheses, references)
            same = {key: getattr(result, key) for key in ("directory", "seed", "signature", "verified")}
            yield {**same, "metric": str(words), "score": found.score, "interval": found.interval}


def report(title: str, lines: Sequence[Line]) -> Report:
    """A table of the scores beside the paper's figures."""
    ranges = list(dict.fromkeys(str(words) for line in lines for words in line.row.words))
    data = pd.DataFrame([_record(line, ranges) for line in lines], dtype=object)
    return Report([Table(_columns(lines, ranges), _notes(lines), title)], data)


def _columns(lines: Sequence[Line], ranges: Sequence[str]) -> dict[str, list[str]]:
    names = dict.fromkeys(paper_name(line.row.metric) for line in lines)
    decimals = 1 if "historical" in {line.row.metric for line in lines} else 2  # as in the papers
    columns = {"row": [line.row.label for line in lines]}
    if len({line.row.pair for line in lines}) > 1:
        columns["pair"] = [line.row.pair for line in lines]
    columns[next(iter(names)) if len(names) == 1 else "score"] = [scored(line.scored, line.metric) for line in lines]
    if _are_tokenized(lines):
        columns["SacreBLEU"] = [scored(line.scored) for line in lines]
    for words in ranges:
        units = dict.fromkeys(line.unit for line in lines if words in map(str, line.row.words))
        columns[f"{words} {' or '.join(units)}"] = [scored(line.scored, words) for line in lines]
    columns[CHRF] = [number(line.scored.get(CHRF), ".2f") for line in lines]
    if any(line.row.paper is not None for line in lines):
        columns["paper"] = [number(line.row.paper, f".{decimals}f") for line in lines]
        columns["difference"] = [number(line.difference, "+.2f") for line in lines]
    if any(line.missing for line in lines):
        columns["missing"] = [line.missing for line in lines]
    return columns


def _are_tokenized(lines: Sequence[Line]) -> bool:
    """Whether a paper's figure is a tokenized BLEU, so that SacreBLEU's BLEU needs a column of its own."""
    return any(line.metric == TOKENIZED for line in lines)


def _notes(lines: Sequence[Line]) -> list[str]:
    notes = [f"Test set: {', '.join(dict.fromkeys(line.row.test for line in lines))}."]
    if any(line.scored.get(f"{BLEU} interval") is not None for line in lines):
        notes.append("±: 95 % confidence interval (bootstrap) of one seed.")
    most = max((len(line.scored.get("seeds", ())) for line in lines), default=0)
    if most > 1:
        notes.append(f"Several seeds (up to {most}): mean ± standard deviation over the seeds.")
    for line in {(line.row.pair, line.row.test): line for line in lines if line.sentences}.values():
        counts = ", ".join(f"{count:,} with {words}" for words, count in line.sentences.items())
        notes.append(
            f"{line.unit.capitalize()}: SacreBLEU's BLEU of the sentences whose source has that many; {line.row.test} "
            f"has {counts}."
        )
    if any(line.row.paper is not None for line in lines):
        names = dict.fromkeys(paper_name(line.row.metric) for line in lines)
        notes.append(f"The paper's figures are compared with {' and '.join(names)}.")
    shown: list[tuple[str, str, Sequence[Line]]] = [
        (paper_name(name), TOKENIZED, [line for line in lines if line.row.metric == name])
        for name, kind in PAPER_METRICS.items()
        if kind is not None
    ]
    shown += [("SacreBLEU" if _are_tokenized(lines) else BLEU, BLEU, lines), (CHRF, CHRF, lines)]
    for label, metric, of_lines in shown:
        found = dict.fromkeys(one for line in of_lines for one in line.scored.get(f"{metric} signatures", ()))
        notes += [f"{label}: {signature}" for signature in found]
        if len(found) > 1:
            notes.append(f"Warning: the {label} signatures differ, so these scores are not comparable.")
    return notes


def _record(line: Line, ranges: Sequence[str]) -> dict[str, object]:
    """The cells of the CSV."""
    row, found = line.row, line.scored

    def with_error(metric: str) -> list[object]:
        return [found.get(f"{metric}{what}") for what in ("", " interval", " spread")]

    record: dict[str, object] = {
        "row": row.label,
        **{name: getattr(row, name) for name in ("pair", "test", "conf", "experiment")},
        "seeds": " ".join(map(str, found.get("seeds", ()))),
        "metric": row.metric,
        **dict(zip(("score", "interval", "spread"), with_error(line.metric), strict=True)),
        **dict(zip(("bleu", "bleu_interval", "bleu_spread"), with_error(BLEU), strict=True)),
        **{"chrf": found.get(CHRF), "paper": row.paper, "difference": line.difference, "missing": line.missing},
        "historical_signature": found.get(f"{TOKENIZED} signature"),
        **{f"{name.lower()}_signature": found.get(f"{name} signature") for name in (BLEU, CHRF)},
    }
    for words in ranges:
        names = [f"{name} {words}" for name in ("bleu", "bleu_interval", "bleu_spread")]
        record[f"sentences {words}"] = line.sentences.get(words)
        record |= dict(zip(names, with_error(words), strict=True))
    return record


def write_report(table: PaperTable, rows: Sequence[Planned], failed: Iterable[Path]) -> str:
    """Writes OUTPUT/CORPUS/tables/NAME.{md,csv}, and returns the text for the terminal."""
    run = rows[0].experiments[0].run
    made = report(table.title, [make_line(planned, set(failed)) for planned in rows])
    files = []
    for kind, style in (("md", "markdown"), ("csv", "csv")):
        files.append(run.results_dir / "tables" / f"{table.name}.{kind}")
        with atomic_path(files[-1]) as temporary:
            temporary.write_text(made.format(style), encoding="utf-8")
    return f"\n{made.format('text')}\nWritten: {' and '.join(map(str, files))}"
