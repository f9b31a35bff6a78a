"""Tables of pooled results, with notes that explain the numbers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from posenc_experiments.base.languages import default_tokenizer, is_unspaced
from posenc_experiments.evaluation.comparison import ADDED, COMPARED, Answer, Comparison
from posenc_experiments.evaluation.differences import by_setting, is_shown, spelled
from posenc_experiments.evaluation.kept import is_kept
from posenc_experiments.evaluation.metrics import (
    BLEU,
    CHRF,
    TER,
    TOKENIZED,
    column_of,
    csv_name,
    splits_at_blanks,
    tokenized_name,
)
from posenc_experiments.evaluation.names import split_shared
from posenc_experiments.evaluation.pooling import full_name, groups_of, metrics_of, scored, title
from posenc_experiments.evaluation.report import Report, Table, number
from posenc_experiments.evaluation.results import GROUP
from posenc_experiments.experiment.versions import as_list


def report(rows: pd.DataFrame) -> Report:
    """Tables of what `pool` or `compared_with_baseline` made, one for each corpus, pair and test set."""
    rows = rows.assign(**{column: None for column in ADDED if column not in rows})
    tables = [
        Table(_columns(group), [*notes(group), *_test_notes(group)], title(group), split_shared(group["name"])[1])
        for group in groups_of(rows)
    ]
    return Report(tables, _data(rows))


def report_answers(answers: Sequence[Answer]) -> Report:
    """A table of the comparisons of each question."""
    data = [_data(one.compared.assign(question=one.question.question)) for one in answers if len(one.compared)]
    return Report(list(map(_answer, answers)), pd.concat(data, ignore_index=True) if data else pd.DataFrame())


def _answer(answer: Answer) -> Table:
    question, rows = answer.question, answer.compared
    columns: dict[str, list[str]] = {"experiment": [], "compared with": [], "difference": [], "verdict": []}
    tables, notes = [" ".join(row) for row in answer.rows[GROUP].itertuples(index=False)], list[str]()
    if question.rule:
        notes.append(f"Rule: {question.rule}")
    if len(rows):
        records = rows.to_dict("records")
        columns = {"experiment": list(rows["shown"]), "compared with": list(rows["baseline"])}
        if len(set(tables)) > 1:
            columns["on"] = [" ".join(row) for row in rows[GROUP].itertuples(index=False)]
        columns["difference"] = list(map(difference, records))
        columns["verdict"] = [verdict(row) or "one seed" for row in records]
    tested = rows[rows["p_value"].notna()] if len(rows) else rows
    if len(tested) < question.size:
        notes.append(
            f"Without several seeds of both rows: {question.size - len(tested)} of {question.size} comparisons."
        )
    if answer.missing:
        notes.append(f"No experiment here is {' or '.join(answer.missing)}.")
    notes += interval_notes(tested) if len(tested) else []
    notes += dict.fromkeys(note for group in groups_of(answer.rows) for note in warnings(group)) if len(rows) else []
    on = f" ({tables[0]})" if len(set(tables)) == 1 else ""
    return Table(columns, notes, f"{question.question}{on}", left=2)


def _test_of(rows: pd.DataFrame) -> Comparison | None:
    """How comparable rows are tested; None if there is nothing to test."""
    test: Comparison | None = rows["comparison"].iloc[0] if len(rows) > 1 else None
    return test


def _columns(rows: pd.DataFrame) -> dict[str, list[str]]:
    test, records = _test_of(rows), rows.to_dict("records")
    columns = {"experiment": list(rows["shown"])}
    if any(len(seeds) > 1 for seeds in rows["seeds"]):
        columns["seeds"] = [str(len(seeds)) for seeds in rows["seeds"]]
    last = {}
    if test is not None:
        last["difference"] = ["baseline" if row["is_baseline"] else difference(row) for row in records]
        if rows["verdict"].notna().any():
            last["verdict"] = list(map(verdict, records))
        if rows["one_seed_p_value"].notna().any():
            last["one seed's p"] = [number(value, ".3f") for value in rows["one_seed_p_value"]]
    last["parameters"] = [number(value, ",.0f") for value in rows["parameters"]]
    if not any(is_kept(one) for directories in rows["directories"] for one in directories):  # of any machines
        last["train words/s"] = [number(value, ",.0f") for value in rows["words_per_second"]]
    metrics = metric_columns(rows, records, (*columns, *last), None if test is None else test.metric)
    return columns | metrics | last


def metric_columns(
    rows: pd.DataFrame, records: Sequence[Mapping[Any, Any]], taken: Collection[str], tested: str | None = None
) -> dict[str, list[str]]:
    """The cells of the metrics that some rows have, of all records; chrF and the like have no error unless tested.

    A metric whose name is taken by another column of the table is headed `metric:NAME`.
    """
    columns = {}
    for name in metrics_of(rows):
        header = _tokenized_name(rows) if name == TOKENIZED else column_of(name) if name in taken else name
        columns[header] = [
            (scored(one, name) if name in (BLEU, TOKENIZED, tested) else number(one.get(column_of(name)), ".2f"))
            + (f" ({one[column_of(name, 'seeds')]} of {len(one['seeds'])} seeds)" if lacks(one, name) else "")
            for one in records
        ]
    return columns


def lacks(row: Mapping[Any, Any], metric: str) -> bool:
    """Whether some seeds of a row have a metric, and others do not."""
    seeds = row.get(column_of(metric, "seeds"))
    return seeds is not None and seeds < len(row["seeds"])


def difference(row: Any) -> str:
    """The cell of a row's difference from the baseline: `+1.29 [+0.62, +1.96]`; empty if there is none."""
    if row["difference"] is None:
        return ""
    return f"{row['difference']:+.2f}{_interval(row['difference_low'], row['difference_high'])}"


def verdict(row: Any) -> str:
    """The cell of a row's verdict: `above [+0.43, +1.91]`; empty if there is none."""
    return "" if row["verdict"] is None else row["verdict"] + _interval(row["verdict_low"], row["verdict_high"])


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None else f" [{low:+.2f}, {high:+.2f}]"


def _data(rows: pd.DataFrame) -> pd.DataFrame:
    """The data of the CSV. BLEU, chrF and tokenized BLEU are in every CSV, other metrics where a row has them."""
    yes_or_no = {True: "yes", False: "no"}
    written = rows.assign(
        experiment=list(map(full_name, rows.itertuples())),
        seeds=rows["seeds"].map(lambda seeds: " ".join(map(str, seeds))),
        metric=rows["comparison"].map(lambda test: test and test.metric).where(rows["difference"].notna(), None),
        verified=rows["verified"].map(yes_or_no),
    )
    metrics = list(dict.fromkeys([CHRF, TOKENIZED, *metrics_of(rows)]))
    metrics.remove(BLEU)
    columns = [
        *(["question"] if "question" in rows else []),
        *GROUP,
        "setup",
        "experiment",
        "arch",
        "flags",
        "seeds",
        BLEU,
        f"{BLEU} interval",
        f"{BLEU} spread",
    ]
    columns += [*map(column_of, metrics), "parameters", "words_per_second", "metric", "baseline", *COMPARED]
    columns += [*(column_of(name, "signature") for name in (BLEU, *metrics)), "fingerprint", "verified"]
    columns += [column_of(name, "seeds") for name in partial_metrics(rows)]
    return written.reindex(columns=columns).rename(columns=csv_name)


def _signatures(rows: pd.DataFrame) -> dict[str, str]:
    """The signature of each metric, which comparable rows share."""
    return {name: rows[column_of(name, "signature")].dropna().iloc[0] for name in metrics_of(rows)}


def _tokenized_name(rows: pd.DataFrame) -> str:
    """The column header for the tokenized BLEU of comparable rows."""
    lowercased = "|case:lc|" in _signatures(rows)[TOKENIZED]
    return tokenized_name("lowercase" if lowercased else "split")


def notes(rows: pd.DataFrame) -> list[str]:
    """The notes under a table: the meaning of ±, warnings and SacreBLEU's signatures."""
    several = any(len(seeds) > 1 for seeds in rows["seeds"])
    found = []
    if rows[f"{BLEU} interval"].notna().any():
        found.append(f"±: 95 % confidence interval (bootstrap){', of one seed' if several else ''}.")
    if several:
        found.append("Several seeds: mean ± standard deviation over the seeds.")
    if partial := partial_metrics(rows):
        found.append(f"(... of ... seeds): the mean of the seeds that have {' or '.join(partial)}; the others lack it.")
    return found + warnings(rows)


def warnings(rows: pd.DataFrame) -> list[str]:
    """What a reader of comparable rows must know of their scores, and SacreBLEU's signatures."""
    signatures, target = _signatures(rows), rows["pair"].iloc[0].split("-")[-1]
    unverified = rows["shown"][~rows["verified"].astype(bool)]
    unsplit = [name for name, one in signatures.items() if is_unspaced(target) and splits_at_blanks(name, one)]
    found = []
    if TOKENIZED in signatures:
        found.append(f"{_tokenized_name(rows)}: tokenized BLEU as some papers print it, not comparable with BLEU.")
    if TER in signatures:
        found.append("TER counts errors: less is better.")
    if "|case:lc|" in signatures[BLEU]:
        found.append("BLEU and chrF ignore case (case:lc), because these models write lowercase.")
    if unsplit:
        found.append(
            f"Warning: {', '.join(unsplit)} split at blanks, which {target} does not have between words: use chrF, "
            f"or BLEU with score.tokenize = {default_tokenizer(target).replace('13a', 'flores200 or char')}."
        )
    found += [*_environments(rows), *_hidden_differences(rows)]
    if len(unverified):
        found.append(
            f"Not verified: {', '.join(unverified)}; the translations or references that were scored are missing."
        )
    found += [f"Reference: {one}" for one in dict.fromkeys(one for row in rows["references"] for one in row)]
    for name in signatures:
        found += [f"{name}: {one}" for one in rows[column_of(name, "signature")].dropna().unique()]
    return found


def partial_metrics(rows: pd.DataFrame) -> list[str]:
    """The metrics that only some seeds of a row have."""
    return [name for name in metrics_of(rows) if any(lacks(row, name) for row in rows.to_dict("records"))]


def _test_notes(rows: pd.DataFrame) -> Iterable[str]:
    """The notes on the tests of comparable rows against a baseline."""
    test = _test_of(rows)
    if test is None:
        return
    yield f"difference: {test.metric} less that of {test.baseline}."
    if rows["p_value"].notna().any():
        yield from interval_notes(rows)
        yield from _pooling_notes(rows, test)
    if rows["one_seed_p_value"].notna().any():
        yield (
            "one seed's p: SacreBLEU's paired bootstrap of the first seed of each. It says whether these two models "
            "would rank so on other sentences, not whether the settings differ: another seed differs, too."
        )
    untested = rows["shown"][rows["difference"].isna() & ~rows["is_baseline"].astype(bool)]
    if len(untested):
        yield f"Not tested, because not all seeds have {test.metric}: {', '.join(untested)}."


def interval_notes(rows: pd.DataFrame) -> Iterable[str]:
    """The notes on the intervals and the verdicts of rows that were compared."""
    yield "[...] after a difference: its 95 % interval by itself, for other seeds and other test sets of this kind."
    test = rows["comparison"].iloc[0]
    if rows["verdict"].notna().any():
        inside = (
            "" if test.margin is None else f", equivalent if it lies between {-test.margin:+g} and {test.margin:+g}"
        )
        counts = " or ".join(str(count) for count in rows["comparisons"].dropna().unique())
        yield f"verdict: above or below if its interval excludes 0{inside}; otherwise undecided."
        yield f"[...] after a verdict: the interval that decides, corrected for its question's comparisons ({counts})."
    if (rows["p_value"].notna() & rows["verdict"].isna()).any():
        yield "Rows without a verdict are compared by no question with this baseline."
    for documents in rows["documents"].unique():
        yield (
            "No documents are known: the test set varies by its sentences, as if these were independent."
            if documents is None
            else f"The test set varies by its {documents} documents."
        )


def _pooling_notes(rows: pd.DataFrame, test: Comparison) -> Iterable[str]:
    """The notes on a pooled variance."""
    tests, (pooling, *_) = rows["p_value"].notna().sum(), rows["pooled_variance"][rows["p_value"].notna()]
    if pooling is not None:
        spread = f"Bartlett's test of equal spread: p = {pooling.equal_spread:.2f}"
        yield (
            f"The seeds' variance is taken as equal in {pooling.rows} rows: standard deviation "
            f"{pooling.variance**0.5:.2f}, {pooling.degrees} degrees of freedom ({spread}; with few "
            "seeds it misses much)."
            if pooling.allowed
            else f"The seeds' variances are not pooled, because they differ ({spread})."
        )
    if test.pool_variance and (far := tests + 1 - (pooling.rows if pooling is not None else 1)):
        yield f"Not pooled: {far} rows that score less than half of the baseline or more than twice as much."


def _environments(rows: pd.DataFrame) -> Iterable[str]:
    """A note for each row whose seeds, or processes of one seed, were trained with different code or libraries."""
    for environments, name in zip(rows["environments"], rows["shown"], strict=True):
        values = {
            key: dict.fromkeys(spelled(value) for one in environments if key in one for value in as_list(one[key]))
            for key in dict.fromkeys(key for one in environments for key in one)
        }
        differing = [f"{key} ({', '.join(found)})" for key, found in values.items() if len(found) > 1]
        if differing:
            yield f"{name} was trained with different code or libraries: {', '.join(differing)}."


def _hidden_differences(rows: pd.DataFrame) -> Iterable[str]:
    """Warnings about settings that differ between rows of one setup, but show in neither architecture nor flags."""
    for _, alike in rows.groupby("setup", sort=False, dropna=False):
        for keys, values in by_setting(list(alike["depends_on"])).items():
            of_value: dict[str, list[str]] = {}
            for name, flags, value in zip(alike["shown"], alike["flags"], values, strict=True):
                if not is_shown(keys, value, flags):
                    of_value.setdefault(spelled(value), []).append(name)
            if len(of_value) > 1:
                listing = "; ".join(f"{value}: {', '.join(of_rows)}" for value, of_rows in of_value.items())
                yield f"Warning: rows differ in more than their names say, {' '.join(keys)} ({listing})."
