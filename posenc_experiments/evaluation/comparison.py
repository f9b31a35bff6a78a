"""Tables of pooled scores, with notes that explain the numbers."""

from collections.abc import Iterable, Sequence
from itertools import combinations

from posenc_experiments.base.recipe import TOKENIZED_KINDS
from posenc_experiments.evaluation.differences import differences, is_explained, spelled
from posenc_experiments.evaluation.metrics import BLEU, CHRF, TOKENIZED
from posenc_experiments.evaluation.pooling import OLD, Row, comparable_groups, mean, row_names, shown_names
from posenc_experiments.evaluation.report import Column, Report, Table, number
from posenc_experiments.experiment.identity import as_list


def report(rows: Sequence[Row]) -> Report:
    """Tables of scores, one for each corpus, pair and test set."""
    tables = [
        Table(group, _columns(group), notes(group, _is_tested(group)), " ".join(group[0].group))
        for group in comparable_groups(rows)
    ]
    return Report(tables, [_record(row) for row in rows])


def _is_tested(rows: Sequence[Row]) -> bool:
    return any(row.p_value is not None for row in rows)


def _columns(rows: list[Row]) -> list[Column[Row]]:
    names = dict(zip(map(id, rows), shown_names(rows), strict=True))
    several = any(len(row.scores) > 1 for row in rows)
    tokenized = any(row.pooled(TOKENIZED) for row in rows)
    tested = _is_tested(rows)
    return [
        Column("experiment", lambda row: names[id(row)], left=True),
        Column("seeds", lambda row: str(len(row.scores)), shown=several),
        Column(BLEU, lambda row: str(row.bleu)),
        Column(CHRF, lambda row: number(mean(row.pooled(CHRF)), ".2f")),
        Column(_tokenized_name(rows), lambda row: str(row.pooled(TOKENIZED) or ""), shown=tokenized),
        Column("parameters", lambda row: number(row.first.parameters, ",.0f")),
        Column("train words/s", lambda row: number(row.words_per_second, ",.0f")),
        Column("p", lambda row: number(row.holm_p_value, ".3f") or "baseline", shown=tested),
    ]


def _record(row: Row) -> dict[str, object]:
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
        "parameters": first.parameters,
        "words_per_second": row.words_per_second,
        "p_value": row.p_value,
        "holm_p_value": row.holm_p_value,
        "bleu_signature": first.bleu.signature,
        "chrf_signature": signatures.get(CHRF),
        "tokenized_bleu_historical_signature": signatures.get(TOKENIZED),
        "fingerprint": first.fingerprint,
        "verified": "yes" if row.verified else "no",
    }


def _tokenized_name(rows: Sequence[Row]) -> str:
    """The column header for the tokenized BLEU of comparable rows."""
    found = [score.metrics[TOKENIZED] for row in rows for score in row.scores if TOKENIZED in score.metrics]
    return f"{TOKENIZED} ({TOKENIZED_KINDS['lowercase' if any(metric.lowercased for metric in found) else 'split']})"


def notes(rows: Sequence[Row], tested: bool) -> list[str]:
    """The notes under a table: the meaning of ±, warnings, SacreBLEU's signatures and, if `tested`, p."""
    scores = [score for row in rows for score in row.scores]
    several = len(scores) > len(rows)
    interval = any(row.bleu.interval is not None for row in rows)
    lowercased = any(score.bleu.lowercased for score in scores)
    old = any(row.first.made_from is None for row in rows)
    unverified = [name for row, name in zip(rows, row_names(rows), strict=True) if not row.verified]
    references = dict.fromkeys(score.bleu.reference for score in scores if score.bleu.reference)
    signatures = {name: metric.signature for score in scores for name, metric in score.metrics.items()}
    tokenized = f"{_tokenized_name(rows)}: tokenized BLEU as some papers print it, not comparable with BLEU."
    every = [
        (interval, f"±: 95 % confidence interval (bootstrap){', of one seed' if several else ''}."),
        (several, "Several seeds: mean ± standard deviation over the seeds."),
        (
            tested,
            "p: paired bootstrap of BLEU against the baseline: SacreBLEU's, one-sided, for one seed; two-sided, over "
            "sentences and seeds, for several.",
        ),
        (tested and len(rows) > 2, "p has Holm's correction for all tests against the baseline."),
        (TOKENIZED in signatures, tokenized),
        (lowercased, "BLEU and chrF ignore case (case:lc), because these models write lowercase."),
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
        *((name in signatures, f"{name}: {signatures.get(name)}") for name in (BLEU, CHRF, TOKENIZED)),
    ]
    return [note for shown, note in every if shown]


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
