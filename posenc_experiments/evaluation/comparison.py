"""Tables of pooled scores, with notes that explain the numbers."""

from collections.abc import Iterable, Sequence
from itertools import combinations

from posenc_experiments.base.languages import default_tokenizer, is_unspaced
from posenc_experiments.base.recipe import TOKENIZED_KINDS
from posenc_experiments.evaluation.differences import differences, is_explained, spelled
from posenc_experiments.evaluation.metrics import BLEU, CHRF, TER, TOKENIZED, splits_at_blanks
from posenc_experiments.evaluation.pooling import (
    OLD,
    Pooled,
    Row,
    Tested,
    comparable_groups,
    find_row,
    mean,
    row_names,
    shown_names,
    title,
)
from posenc_experiments.evaluation.report import Column, Report, Table, number
from posenc_experiments.evaluation.significance import ALPHA
from posenc_experiments.experiment.identity import as_list


def report(rows: Sequence[Row]) -> Report:
    """Tables of scores, one for each corpus, pair and test set."""
    tables = [
        Table(group, _columns(group), [*notes(group), *_test_notes(group)], title(group))
        for group in comparable_groups(rows)
    ]
    more = [name for name in _other_metrics(rows) if name not in (CHRF, TOKENIZED)]
    return Report(tables, [_record(row, more) for row in rows])


def p_note(tests: int) -> str:
    """The note on p in a table of this number of tests."""
    correction = f", with Holm's correction for {tests} tests" if tests > 1 else ""
    return f"p: t test over seeds and sentences, two-sided{correction}."


def _columns(rows: list[Row]) -> list[Column[Row]]:
    names = dict(zip(map(id, rows), shown_names(rows), strict=True))
    several = any(len(row.scores) > 1 for row in rows)
    tested = [row.tested for row in rows if row.tested is not None]
    baseline = find_row(rows, tested[0].test.baseline) if tested else None
    with_error = {TOKENIZED, *(one.test.metric for one in tested)}
    return [
        Column("experiment", lambda row: names[id(row)], left=True),
        Column("seeds", lambda row: str(len(row.scores)), shown=several),
        Column(BLEU, lambda row: str(row.bleu)),
        *(
            Column(_header(rows, name), lambda row, name=name: _score(row.pooled(name), name in with_error))  # type: ignore[misc]
            for name in _other_metrics(rows)
        ),
        Column("difference", lambda row: "baseline" if row is baseline else _difference(row), shown=bool(tested)),
        Column(
            "p",
            lambda row: number(row.tested.holm_p_value if row.tested else None, ".3f"),
            shown=any(one.tests for one in tested),
        ),
        Column(
            "one seed's p",
            lambda row: number(row.tested.sacrebleu_p_value if row.tested else None, ".3f"),
            shown=any(one.sacrebleu_p_value is not None for one in tested),
        ),
        Column("parameters", lambda row: number(row.first.parameters, ",.0f")),
        Column("train words/s", lambda row: number(row.words_per_second, ",.0f")),
    ]


def _other_metrics(rows: Sequence[Row]) -> list[str]:
    """The metrics of comparable rows beside BLEU, in the order of columns."""
    return [name for name in dict.fromkeys(name for row in rows for name in row.metrics) if name != BLEU]


def _header(rows: Sequence[Row], metric: str) -> str:
    return _tokenized_name(rows) if metric == TOKENIZED else metric


def _score(pooled: Pooled | None, with_error: bool) -> str:
    """The cell of a metric: chrF and the like without an error, unless they are tested."""
    return str(pooled or "") if with_error else number(mean(pooled), ".2f")


def _difference(row: Row) -> str:
    """The cell of a row's difference from the baseline: `+1.29 [+0.62, +1.96]*`."""
    one = row.tested
    if one is None:
        return ""
    interval = "" if one.interval is None else " [{:+.2f}, {:+.2f}]".format(*one.interval)
    return f"{one.difference:+.2f}{interval}{'*' * one.significant}{'≈' * bool(one.equivalent)}"


def _test_record(tested: Tested | None) -> dict[str, object]:
    low, high = (tested and tested.interval) or (None, None)
    return {
        "metric": tested and tested.test.metric,
        "difference": tested and tested.difference,
        "difference_low": low,
        "difference_high": high,
        "p_value": tested and tested.p_value,
        "holm_p_value": tested and tested.holm_p_value,
        "equivalent": None if tested is None or tested.equivalent is None else "yes" if tested.equivalent else "no",
        "one_seed_p_value": tested and tested.sacrebleu_p_value,
    }


def _record(row: Row, metrics: Sequence[str]) -> dict[str, object]:
    """A row of the CSV; `metrics` are those of all rows that are not in every CSV."""
    first, bleu = row.first, row.bleu
    signatures = {name: metric.signature for name, metric in first.metrics.items()}
    return {
        **dict(zip(("corpus", "pair", "test"), row.group, strict=True)),
        "setup": first.setup,
        "experiment": first.name,
        "arch": first.arch,
        "flags": first.flag_words,
        "seeds": " ".join(str(score.seed) for score in row.scores),
        "bleu": bleu.mean,
        "bleu_interval": bleu.interval,
        "bleu_spread": bleu.spread,
        "chrf": mean(row.pooled(CHRF)),
        "tokenized_bleu_historical": mean(row.pooled(TOKENIZED)),
        **{name.lower(): mean(row.pooled(name)) for name in metrics},
        "parameters": first.parameters,
        "words_per_second": row.words_per_second,
        **_test_record(row.tested),
        "bleu_signature": first.bleu.signature,
        "chrf_signature": signatures.get(CHRF),
        "tokenized_bleu_historical_signature": signatures.get(TOKENIZED),
        **{f"{name.lower()}_signature": signatures.get(name) for name in metrics},
        "fingerprint": first.fingerprint,
        "verified": "yes" if row.verified else "no",
    }


def _tokenized_name(rows: Sequence[Row]) -> str:
    """The column header for the tokenized BLEU of comparable rows."""
    found = [score.metrics[TOKENIZED] for row in rows for score in row.scores if TOKENIZED in score.metrics]
    return f"{TOKENIZED} ({TOKENIZED_KINDS['lowercase' if any(metric.lowercased for metric in found) else 'split']})"


def notes(rows: Sequence[Row]) -> list[str]:
    """The notes under a table: the meaning of ±, warnings and SacreBLEU's signatures."""
    scores = [score for row in rows for score in row.scores]
    several = len(scores) > len(rows)
    interval = any(row.bleu.interval is not None for row in rows)
    lowercased = any(score.bleu.lowercased for score in scores)
    old = any(row.first.made_from is None for row in rows)
    unverified = [name for row, name in zip(rows, row_names(rows), strict=True) if not row.verified]
    references = dict.fromkeys(score.bleu.reference for score in scores if score.bleu.reference)
    signatures = {name: metric.signature for score in scores for name, metric in score.metrics.items()}
    target = scores[0].pair.split("-")[-1]
    unsplit = [name for name, one in signatures.items() if is_unspaced(target) and splits_at_blanks(name, one)]
    better = default_tokenizer(target).replace("13a", "flores200 or char")
    tokenized = f"{_tokenized_name(rows)}: tokenized BLEU as some papers print it, not comparable with BLEU."
    every = [
        (interval, f"±: 95 % confidence interval (bootstrap){', of one seed' if several else ''}."),
        (several, "Several seeds: mean ± standard deviation over the seeds."),
        (TOKENIZED in signatures, tokenized),
        (lowercased, "BLEU and chrF ignore case (case:lc), because these models write lowercase."),
        (
            bool(unsplit),
            f"Warning: {', '.join(unsplit)} split at blanks, which {target} does not have between words: use chrF, "
            f"or BLEU with score.tokenize = {better}.",
        ),
        (
            old,
            f"{OLD}: trained before experiments recorded what their results depend on: its seeds are not pooled, and "
            "it may differ from other rows in unknown settings.",
        ),
        *((True, note) for note in (*_environments(rows), *_hidden_differences(rows))),
        (
            bool(unverified),
            f"Not verified: {', '.join(unverified)}; the scores do not record the hashes of their files, or files are "
            "missing. Run the stage score again to verify them.",
        ),
        *((True, f"Reference: {reference}") for reference in references),
        *((True, f"{name}: {signatures[name]}") for name in (BLEU, *_other_metrics(rows)) if name in signatures),
    ]
    return [note for shown, note in every if shown]


def _test_notes(rows: Sequence[Row]) -> Iterable[str]:
    """The notes on the tests of comparable rows against a baseline."""
    tested = [row.tested for row in rows if row.tested is not None]
    if not tested:
        return
    test = tested[0].test
    yield f"difference: {test.metric} less that of {test.baseline}, *: p <= {ALPHA}" + (
        f", ≈: within {test.margin:g} of it (two one-sided tests at {ALPHA}, not corrected)."
        if test.margin is not None
        else "."
    )
    several = next((one for one in tested if one.tests), None)
    if several is not None:
        pooling = several.pooling
        yield "[...]: 95 % confidence interval of the difference, for other seeds and sentences."
        yield p_note(several.tests)
        if pooling is not None:
            spread = f"Bartlett's test of equal spread: p = {pooling.equal_spread:.2f}"
            yield (
                f"The seeds' variance is taken as equal in {pooling.rows} rows: standard deviation "
                f"{pooling.variance**0.5:.2f}, {pooling.degrees} degrees of freedom ({spread}; with few "
                "seeds it misses much)."
                if pooling.allowed
                else f"The seeds' variances are not pooled, because they differ ({spread})."
            )
        if test.pool_variance and (far := several.tests + 1 - (pooling.rows if pooling is not None else 1)):
            yield f"Not pooled: {far} rows that score less than half of the baseline or more than twice as much."
    if any(one.sacrebleu_p_value is not None for one in tested):
        yield (
            "one seed's p: SacreBLEU's paired bootstrap of one translation each. It says whether these two models "
            "would rank so on other sentences, not whether the settings differ: another seed differs, too."
        )
    untested = [row for row in rows if row.tested is None and row is not find_row(rows, test.baseline)]
    if untested:
        yield f"Not tested, because not all seeds have {test.metric}: {', '.join(shown_names(untested))}."
    if test.metric == TER:
        yield "TER counts errors: less is better."


def _environments(rows: Sequence[Row]) -> Iterable[str]:
    """A note for each row whose seeds, or processes of one seed, were trained with different code or libraries."""
    for row, name in zip(rows, shown_names(rows), strict=True):
        keys = dict.fromkeys(key for score in row.scores for key in score.environment)
        values = {
            key: list(
                dict.fromkeys(spelled(one) for score in row.scores for one in as_list(score.environment.get(key)))
            )
            for key in keys
        }
        differing = [f"{key} ({', '.join(found)})" for key, found in values.items() if len(found) > 1]
        if differing:
            yield f"{name} was trained with different code or libraries: {', '.join(differing)}."


def _hidden_differences(rows: Sequence[Row]) -> Iterable[str]:
    """Warnings about settings that differ between rows of one setup, but show in neither architecture nor flags."""
    # Imported here, because it imports torch and fairseq, which would slow down other tables.
    from fairseq_posenc.arguments import MODEL_FLAGS

    names = dict(zip(map(id, rows), shown_names(rows), strict=True))
    found: dict[str, dict[str, list[str]]] = {}  # setting that differs -> value -> names of rows
    for one, other in combinations((row for row in rows if row.first.made_from is not None), 2):
        if one.first.setup != other.first.setup:
            continue
        flags = [
            name
            for name in one.first.flags.keys() | other.first.flags.keys()
            if one.first.flags.get(name) != other.first.flags.get(name)
        ]
        if "bias-gain" in one.first.flags | other.first.flags:  # `auto` is a different number for each encoding
            flags += ["bias-gain", "input-gain"]
        for difference in differences(one.first.made_from, other.first.made_from):
            if not is_explained(difference, flags, one.first.arch != other.first.arch, MODEL_FLAGS):
                path, *values = difference
                of_value = found.setdefault(" ".join(path), {})
                for row, value in zip((one, other), values, strict=True):
                    of_rows = of_value.setdefault(spelled(value), [])
                    if names[id(row)] not in of_rows:
                        of_rows.append(names[id(row)])
    for what, of_value in found.items():
        listing = "; ".join(f"{value}: {', '.join(of_rows)}" for value, of_rows in of_value.items())
        yield f"Warning: rows differ in more than their names say, {what} ({listing})."
