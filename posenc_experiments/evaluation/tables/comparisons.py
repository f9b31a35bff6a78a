"""Tables of pooled results, with notes that explain the numbers."""

from collections.abc import Collection, Iterable, Sequence

import pandas as pd

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.languages import is_unspaced, usable_tokenizer
from posenc_experiments.evaluation.differences import by_setting, is_shown, spelled
from posenc_experiments.evaluation.kept import is_kept
from posenc_experiments.evaluation.metrics import (
    BLEU,
    CHRF,
    OTHER,
    TER,
    TOKENIZED,
    csv_column,
    splits_at_blanks,
    tokenized_name,
)
from posenc_experiments.evaluation.statistics.comparison import FIGURES, Answer, ComparedRow, ComparedTable
from posenc_experiments.evaluation.statistics.pooling import PooledRow, signatures_of, split_shared
from posenc_experiments.evaluation.tables.report import Report, Table, number
from posenc_experiments.experiment.versions import as_list


def report(tables: Sequence[ComparedTable | list[PooledRow]]) -> Report:
    """The tables that `pool` or `compared_with_baseline` made."""
    compared = [ComparedTable(list(map(ComparedRow, one))) if isinstance(one, list) else one for one in tables]
    shown = []
    for table in compared:
        rows = [one.row for one in table.rows]
        shared = split_shared(row.setting.name for row in rows)[1]
        shown.append(Table(_columns(table), [*notes(rows), *_test_notes(table)], rows[0].setting.title, shared))
    return Report(shown, _data(compared))


def report_answers(answers: Sequence[Answer]) -> Report:
    """A table of the comparisons of each question."""
    data = [_data(one.compared, one.question.question) for one in answers if any(table.rows for table in one.compared)]
    return Report(list(map(_answer, answers)), pd.concat(data, ignore_index=True) if data else pd.DataFrame())


def _answer(answer: Answer) -> Table:
    question, titles = answer.question, list(dict.fromkeys(rows[0].setting.title for rows in answer.rows if rows))
    rows = [row for table in answer.compared for row in table.rows]
    columns = {
        "experiment": [row.row.shown for row in rows],
        "compared with": [row.baseline_name for row in rows],
        **({"on": [row.row.setting.title for row in rows]} if rows and len(titles) > 1 else {}),
        "difference": list(map(difference, rows)),
        "verdict": [verdict(row) or "one seed" for row in rows],
    }
    notes = [f"Rule: {question.rule}"] if question.rule else []
    if lacking := question.size - sum(len(table.tested) for table in answer.compared):
        notes.append(f"Without several seeds of both rows: {lacking} of {question.size} comparisons.")
    if answer.missing:
        notes.append(f"No experiment here is {' or '.join(answer.missing)}.")
    notes += interval_notes(answer.compared)
    if rows:
        notes += dict.fromkeys(note for named in answer.rows if named for note in warnings(named))
    on = f" ({titles[0]})" if len(titles) == 1 else ""
    return Table(columns, notes, f"{question.question}{on}", left=2)


def _columns(table: ComparedTable) -> dict[str, list[str]]:
    rows = [one.row for one in table.rows]
    columns = {"experiment": [row.shown for row in rows]}
    if any(len(row.seeds) > 1 for row in rows):
        columns["seeds"] = [str(len(row.seeds)) for row in rows]
    last = {}
    if _is_tested(table):
        last["difference"] = ["baseline" if row.is_baseline else difference(row) for row in table.rows]
        if any(row.verdict for row in table.rows):
            last["verdict"] = list(map(verdict, table.rows))
        if any(row.one_seed_p_value is not None for row in table.rows):
            last["one seed's p"] = [number(row.one_seed_p_value, ".3f") for row in table.rows]
    last["parameters"] = [number(row.parameters, ",.0f") for row in rows]
    if not any(is_kept(directory) for row in rows for directory in row.directories):  # of any machines
        last["train words/s"] = [number(row.words_per_second, ",.0f") for row in rows]
    tested = table.how.metric if _is_tested(table) else None
    return columns | metric_columns(rows, (*columns, *last), tested) | last


def _is_tested(table: ComparedTable) -> bool:
    """Whether there is anything to test."""
    return table.rows[0].baseline is not None and len(table.rows) > 1


def metric_columns(
    rows: Sequence[PooledRow | None], taken: Collection[str], tested: str | None = None
) -> dict[str, list[str]]:
    """The cells of the metrics that some rows have; chrF and the like have no error unless tested.

    A metric whose name is taken by another column of the table is headed `metric:NAME`.
    """
    columns = {}
    for name, signatures in signatures_of(row for row in rows if row is not None).items():
        header = _tokenized_name(signatures) if name == TOKENIZED else f"{OTHER}{name}" if name in taken else name
        columns[header] = [_metric_cell(row, name, name in (BLEU, TOKENIZED, tested)) for row in rows]
    return columns


def _metric_cell(row: PooledRow | None, metric: str, with_error: bool) -> str:
    score = None if row is None else row.scores.get(metric)
    if row is None or score is None:
        return ""
    partial = f" ({score.seeds} of {len(row.seeds)} seeds)" if score.seeds < len(row.seeds) else ""
    return (str(score) if with_error else f"{score.mean:.2f}") + partial


def difference(row: ComparedRow) -> str:
    """The cell of a row's difference from the baseline: `+1.29 [+0.62, +1.96]`; empty if there is none."""
    if row.difference is None:
        return ""
    return f"{row.difference:+.2f}{_interval(row.difference_low, row.difference_high)}"


def verdict(row: ComparedRow) -> str:
    """The cell of a row's verdict: `above [+0.43, +1.91]`; empty if there is none."""
    return "" if row.verdict is None else row.verdict + _interval(row.verdict_low, row.verdict_high)


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None else f" [{low:+.2f}, {high:+.2f}]"


def _data(tables: Sequence[ComparedTable], question: str | None = None) -> pd.DataFrame:
    """The data of the CSV. BLEU, chrF and tokenized BLEU are in every CSV, other metrics where a row has them."""
    rows = [one.row for table in tables for one in table.rows]
    metrics = list(dict.fromkeys([BLEU, CHRF, TOKENIZED, *signatures_of(rows)]))
    columns = [*(["question"] if question is not None else []), "corpus", "pair", "test", "setup", "experiment"]
    columns += ["arch", "flags", "seeds", *(csv_column(BLEU, what) for what in ("", "interval", "spread"))]
    columns += [*map(csv_column, metrics[1:]), "parameters", "words_per_second", "metric", "baseline", *FIGURES]
    columns += [*(csv_column(name, "signature") for name in metrics), "fingerprint", "verified"]
    columns += [csv_column(name, "seeds") for name in partial_metrics(rows)]
    records = [
        {**vars(one.row.setting), **vars(one.row), **vars(one), **metric_cells(one.row)}
        | {"question": question, "experiment": one.row.setting.full_name, "baseline": one.baseline_name}
        | {"metric": None if one.difference is None else table.how.metric}
        | {"seeds": " ".join(map(str, one.row.seeds)), "verified": "yes" if one.row.verified else "no"}
        for table in tables
        for one in table.rows
    ]
    return pd.DataFrame(records, columns=columns, dtype=object)


def metric_cells(row: PooledRow) -> dict[str, float | int | str | None]:
    """The cells of a row's metrics in a CSV, by column."""
    return {
        csv_column(name, what): value
        for name, score in row.scores.items()
        for what, value in (vars(score) | {"": score.mean}).items()
    }


def _tokenized_name(signatures: Sequence[str]) -> str:
    """The column header for the tokenized BLEU of comparable rows."""
    return tokenized_name("lowercase" if "|case:lc|" in signatures[0] else "split")


def notes(rows: Sequence[PooledRow]) -> list[str]:
    """The notes under a table: the meaning of ±, warnings and SacreBLEU's signatures."""
    several = any(len(row.seeds) > 1 for row in rows)
    texts = []
    if any(row.bleu.interval is not None for row in rows):
        texts.append(f"±: 95 % confidence interval (bootstrap){', of one seed' if several else ''}.")
    if several:
        texts.append("Several seeds: mean ± standard deviation over the seeds.")
    if partial := partial_metrics(rows):
        texts.append(f"(... of ... seeds): the mean of the seeds that have {' or '.join(partial)}; the others lack it.")
    return texts + warnings(rows)


def warnings(rows: Sequence[PooledRow]) -> list[str]:
    """What a reader of comparable rows must know of their scores, and SacreBLEU's signatures."""
    signatures, target = signatures_of(rows), rows[0].setting.pair.split("-")[-1]
    unverified = [row.shown for row in rows if not row.verified]
    unsplit = [name for name, (one, *_) in signatures.items() if is_unspaced(target) and splits_at_blanks(name, one)]
    texts = []
    if TOKENIZED in signatures:
        name = _tokenized_name(signatures[TOKENIZED])
        texts.append(f"{name}: tokenized BLEU as some papers print it, not comparable with BLEU.")
    if TER in signatures:
        texts.append("TER counts errors: less is better.")
    if "|case:lc|" in signatures[BLEU][0]:
        texts.append("BLEU and chrF ignore case (case:lc), because these models write lowercase.")
    if unsplit:
        texts.append(
            f"Warning: {', '.join(unsplit)} split at blanks, which {target} does not have between words: use chrF, "
            f"or BLEU with score.tokenize = {_splitting_tokenizers(target)}."
        )
    texts += [*_environments(rows), *_hidden_differences(rows)]
    if unverified:
        texts.append(
            f"Not verified: {', '.join(unverified)}; the translations or references that were scored are missing."
        )
    texts += [f"Reference: {one}" for one in dict.fromkeys(one for row in rows for one in row.references)]
    return texts + [f"{name}: {one}" for name, several in signatures.items() for one in several]


def partial_metrics(rows: Sequence[PooledRow]) -> list[str]:
    """The metrics that only some seeds of a row have."""
    partial = {name for row in rows for name, score in row.scores.items() if score.seeds < len(row.seeds)}
    return [name for name in signatures_of(rows) if name in partial]


def _test_notes(table: ComparedTable) -> Iterable[str]:
    """The notes on the tests of comparable rows against a baseline."""
    metric, baseline = table.how.metric, table.rows[0].baseline
    if baseline is None or not _is_tested(table):
        return
    yield f"difference: {metric} less that of {baseline.shown}."
    if table.tested:
        yield from interval_notes([table])
        yield from _pooling_notes(table)
    if any(row.one_seed_p_value is not None for row in table.rows):
        yield (
            "one seed's p: SacreBLEU's paired bootstrap of the first seed of each. It says whether these two models "
            "would rank so on other sentences, not whether the settings differ: another seed differs, too."
        )
    lacking = [row.row.shown for row in table.rows if row.difference is None and not row.is_baseline]
    if lacking:
        yield f"Not tested, because not all seeds have {metric}: {', '.join(lacking)}."


def interval_notes(tables: Sequence[ComparedTable]) -> Iterable[str]:
    """The notes on the intervals and the verdicts of tables that are compared in one way."""
    tested = [row for table in tables for row in table.tested]
    if not tested:
        return
    yield "[...] after a difference: its 95 % interval by itself, for other seeds and other test sets of this kind."
    if any(row.verdict for row in tested):
        margin = tables[0].how.margin
        inside = "" if margin is None else f", equivalent if it lies between {-margin:+g} and {margin:+g}"
        counts = " or ".join(dict.fromkeys(str(row.comparisons) for row in tested if row.comparisons is not None))
        yield f"verdict: above or below if its interval excludes 0{inside}; otherwise undecided."
        yield f"[...] after a verdict: the interval that decides, corrected for its question's comparisons ({counts})."
    if not all(row.verdict for row in tested):
        yield "Rows without a verdict are compared by no question with this baseline."
    for documents in dict.fromkeys(table.documents for table in tables if table.tested):
        yield (
            "No documents are known: the test set varies by its sentences, as if these were independent."
            if documents is None
            else f"The test set varies by its {documents} documents."
        )


def _pooling_notes(table: ComparedTable) -> Iterable[str]:
    """The notes on a pooled variance."""
    pooled = table.pooled_variance
    if pooled is not None:
        spread = f"Bartlett's test of equal spread: p = {pooled.equal_spread:.2f}"
        yield (
            f"The seeds' variance is taken as equal in {pooled.rows} rows: standard deviation "
            f"{pooled.variance**0.5:.2f}, {pooled.degrees} degrees of freedom ({spread}; with few "
            "seeds it misses much)."
            if pooled.allowed
            else f"The seeds' variances are not pooled, because they differ ({spread})."
        )
    if table.how.pool_variance and (far := len(table.tested) + 1 - (1 if pooled is None else pooled.rows)):
        yield f"Not pooled: {far} rows that score less than half of the baseline or more than twice as much."


def _splitting_tokenizers(language: str) -> str:
    """The tokenizers that split text of a language without blanks between words."""
    try:
        own = usable_tokenizer(None, language)
    except RecipeError:  # what it needs is not on this machine
        own = "13a"
    return "flores200 or char" if own == "13a" else own


def _environments(rows: Iterable[PooledRow]) -> Iterable[str]:
    """A note for each row whose seeds, or parts of a seed, were trained with different code, libraries or devices."""
    for row in rows:
        values = {
            key: dict.fromkeys(spelled(value) for one in row.environments if key in one for value in as_list(one[key]))
            for key in dict.fromkeys(key for one in row.environments for key in one)
        }
        differing = [f"{key} ({', '.join(several)})" for key, several in values.items() if len(several) > 1]
        if differing:
            yield f"{row.shown} was trained with different code, libraries or devices: {', '.join(differing)}."


def _hidden_differences(rows: Iterable[PooledRow]) -> Iterable[str]:
    """Warnings about settings that differ between rows of one setup, but show in neither architecture nor flags."""
    setups: dict[str | None, list[PooledRow]] = {}
    for row in rows:
        setups.setdefault(row.setting.setup, []).append(row)
    for alike in setups.values():
        for keys, values in by_setting([row.depends_on for row in alike]).items():
            names: dict[str, list[str]] = {}
            for row, value in zip(alike, values, strict=True):
                if not is_shown(keys, value, row.flags):
                    names.setdefault(spelled(value), []).append(row.shown)
            if len(names) > 1:
                listing = "; ".join(f"{value}: {', '.join(having)}" for value, having in names.items())
                yield f"Warning: rows differ in more than their names say, {' '.join(keys)} ({listing})."
