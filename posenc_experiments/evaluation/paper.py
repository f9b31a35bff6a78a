"""Reports experiments beside the figures of a paper's table, from the files of the experiment directories alone."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from posenc_experiments.base.languages import length, unit
from posenc_experiments.base.markers import atomic_path
from posenc_experiments.evaluation.comparison import metric_columns, notes
from posenc_experiments.evaluation.metrics import BLEU, CHRF, PAPER_METRICS, TOKENIZED, csv_name, tokenized_name
from posenc_experiments.evaluation.paper_table import TableRow, is_within
from posenc_experiments.evaluation.pooling import groups_of, metrics_of, pooled_seeds, scored
from posenc_experiments.evaluation.report import Report, Table, number
from posenc_experiments.evaluation.results import of_tests, read_results, read_test_texts
from posenc_experiments.evaluation.significance import resample_chosen
from posenc_experiments.experiment.experiment import Experiment

#: a row of a paper's table with its scores so far: the columns of its file, those that `pooled_seeds` makes, "score" in
#: the paper's metric, "difference" (from the paper), "missing" (which scores are missing, and why), and for each range
#: of words, such as 1-14, its BLEU and "sentences 1-14" (their number)
Line = dict[str, Any]


def make_line(row: TableRow, experiments: Sequence[Experiment], failed: Collection[Path] = ()) -> Line:
    """Reads the scores of a row so far; `failed` are the directories of experiments whose jobs failed in this call."""
    missing = {one.seed: reason for one in experiments if (reason := _why_missing(one, failed))}
    line: Line = {"seeds": []}
    if done := [one.directory for one in experiments if one.seed not in missing]:
        results = read_results(done)
        results = results[results["test"] == row.test]
        of_words = []
        for words in row.words:
            found = list(_of_words(results, words))
            line[f"sentences {words}"] = found[0]["lines"]
            of_words += [one for one in found if one["lines"]]
        line |= pooled_seeds(pd.concat([results, pd.DataFrame(of_words)]) if of_words else results)
    score = line.get(BLEU if PAPER_METRICS[row.metric] is None else TOKENIZED)
    line |= {**row._asdict(), "shown": row.row, "score": score}
    line["difference"] = None if score is None or row.paper is None else score - row.paper
    several = len(experiments) > 1
    line["missing"] = "; ".join(f"seed {seed} {why}" if several else why for seed, why in missing.items())
    return line


def _why_missing(experiment: Experiment, failed: Collection[Path]) -> str:
    if experiment.is_done("score"):
        return ""
    if experiment.directory in failed:
        return "failed"
    if experiment.is_done("train"):
        return "not scored"
    return "not trained" if not experiment.train_log.is_file() else "training not finished"


def _of_words(results: pd.DataFrame, words: str) -> Iterator[dict[str, Any]]:
    """Each seed's result on the `lines` whose source has so many words, as a metric, computed as BLEU of all is.

    Raises:
        RecipeError: a file is missing, or those of a test set have different numbers of lines.
    """
    for result in of_tests(results):
        sources, language = read_test_texts(result)[0], result.pair.split("-")[0]
        inside = [is_within(length(line, language), words) for line in sources]
        found = result._asdict() | {"metric": words, "signature": None, "lines": sum(inside)}
        if any(inside):
            resampled = resample_chosen([result], BLEU, inside)
            found |= {"score": resampled.score, "interval": resampled.interval}
        yield found


def report(title: str, lines: Sequence[Line]) -> Report:
    """A table of the scores beside the paper's figures."""
    ranges = list(dict.fromkeys(words for line in lines for words in line["words"]))
    rows = pd.DataFrame([line for line in lines if line["seeds"]], dtype=object)
    return Report([Table(_columns(lines, rows, ranges), _notes(lines, rows), title)], _data(lines, rows, ranges))


def _columns(lines: Sequence[Line], rows: pd.DataFrame, ranges: Sequence[str]) -> dict[str, list[str]]:
    """The cells of each column; `rows` are the lines that have scores."""
    columns = {"row": [line["row"] for line in lines]}
    if len({line["pair"] for line in lines}) > 1:
        columns["pair"] = [line["pair"] for line in lines]
    columns |= metric_columns(rows, lines)
    columns |= {f"{words} {_unit(lines[0])}": [scored(line, words) for line in lines] for words in ranges}
    if any(line["paper"] is not None for line in lines):
        decimals = 1 if "historical" in {line["metric"] for line in lines} else 2  # as in the papers
        columns["paper"] = [number(line["paper"], f".{decimals}f") for line in lines]
        columns["difference"] = [number(line["difference"], "+.2f") for line in lines]
    if any(line["missing"] for line in lines):
        columns["missing"] = [line["missing"] for line in lines]
    return columns


def _unit(line: Line) -> str:
    """What the lengths of sources count."""
    return unit(line["pair"].split("-")[0])


def _notes(lines: Sequence[Line], rows: pd.DataFrame) -> list[str]:
    found = [f"Test set: {', '.join(dict.fromkeys(line['test'] for line in lines))}."]
    if kinds := dict.fromkeys(PAPER_METRICS[line["metric"]] for line in lines if line["paper"] is not None):
        names = [BLEU if kind is None else tokenized_name(kind) for kind in kinds]
        found.append(f"The paper's figures are compared with {' and '.join(names)}.")
    for line in (line for line in lines if line["words"] and line["seeds"]):
        counts = ", ".join(f"{line[f'sentences {words}']:,} with {words}" for words in line["words"])
        found.append(f"BLEU by {_unit(line)} of the source; {line['pair']} {line['test']} has {counts}.")
    for group in groups_of(rows) if len(rows) else ():
        found += notes(group)
    for metric in metrics_of(rows):
        if rows[f"{metric} signature"].nunique() > 1:
            found.append(f"Warning: the {metric} signatures differ, so these scores are not comparable.")
    return list(dict.fromkeys(found))


def _data(lines: Sequence[Line], rows: pd.DataFrame, ranges: Sequence[str]) -> pd.DataFrame:
    """The data of the CSV."""
    metrics, errors = list(dict.fromkeys((BLEU, CHRF, TOKENIZED, *metrics_of(rows)))), ("", " interval", " spread")
    columns = ["row", "pair", "test", "conf", "experiment", "seeds", "metric", "score"]
    columns += [f"{metric}{what}" for metric in metrics for what in errors]
    columns += ["paper", "difference", "missing", *(f"{metric} signature" for metric in metrics)]
    names = {column: csv_name(column) for column in columns}
    for words in ranges:
        names[f"sentences {words}"] = f"sentences {words}"
        names |= {f"{words}{what}": f"{csv_name(BLEU + what)} {words}" for what in errors}
    written = [line | {"seeds": " ".join(map(str, line["seeds"]))} for line in lines]
    return pd.DataFrame(written, columns=list(names), dtype=object).rename(columns=names)


def write_report(title: str, path: Path, lines: Sequence[Line]) -> str:
    """Writes the table as Markdown and CSV, PATH.md and PATH.csv, and returns the text for the terminal."""
    made = report(title, lines)
    files = [path.with_name(f"{path.name}.{kind}") for kind in ("md", "csv")]
    for file, style in zip(files, ("markdown", "csv"), strict=True):
        with atomic_path(file) as temporary:
            temporary.write_text(made.format(style), encoding="utf-8")
    return f"\n{made.format('text')}\nWritten: {' and '.join(map(str, files))}"
