"""Tables of pooled scores, with what a reader must know beside the numbers."""

import csv
import io
from collections.abc import Iterable, Sequence
from itertools import combinations

from tabulate import tabulate  # type: ignore[import-untyped]

from posenc_experiments.evaluation.differences import differences, is_explained, spelled
from posenc_experiments.evaluation.pooling import OLD, Row, comparable_groups, row_names, shown_names

COLUMNS = (
    *("corpus", "pair", "test", "setup", "experiment", "arch", "flags", "seeds"),
    *("bleu", "bleu_interval", "bleu_spread", "chrf", "tokenized_bleu_historical"),
    *("parameters", "words_per_second", "p_value"),
    *("bleu_signature", "chrf_signature", "tokenized_bleu_historical_signature"),
    *("fingerprint", "verified"),
)


def _number(value: float | None, decimals: int) -> str:
    return "" if value is None else f"{value:,.{decimals}f}"


def with_error(value: float, error: float | None) -> str:
    """A score as tables show it."""
    return f"{value:.2f}" if error is None else f"{value:.2f} ± {error:.2f}"


def _tokenized_name(rows: list[Row]) -> str:
    """What the tokenized BLEU of comparable rows is called."""
    lowercased = any(score.historical and score.historical.lowercased for row in rows for score in row.scores)
    return f"tok. BLEU ({'lowercased' if lowercased else 'historical'})"


def _table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Headers and cells; a column that would be empty is left out."""
    several = any(len(row.scores) > 1 for row in rows)
    tested = any(row.p_value is not None for row in rows)
    historical = any(row.historical is not None for row in rows)
    headers = [
        "experiment",
        *(["seeds"] if several else []),
        "BLEU",
        "chrF",
        *([_tokenized_name(rows)] if historical else []),
        "parameters",
        "train words/s",
        *(["p"] if tested else []),
    ]
    cells = []
    for row, name in zip(rows, shown_names(rows), strict=True):
        bleu = with_error(row.bleu, row.bleu_error)
        line = [name, *([str(len(row.scores))] if several else []), bleu, _number(row.chrf, 2)]
        if historical:
            line.append("" if row.historical is None else with_error(row.historical, row.historical_spread))
        line += [_number(row.first.parameters, 0), _number(row.words_per_second, 0)]
        cells.append([*line, *([("baseline" if row.p_value is None else f"{row.p_value:.3f}")] if tested else [])])
    return headers, cells


def _notes(rows: list[Row]) -> list[str]:
    """What a reader must know beside the numbers: the errors' meaning and SacreBLEU's signatures."""
    notes = []
    if any(row.bleu_interval is not None for row in rows):
        notes.append(
            "±: 95 % confidence interval (bootstrap)"
            + (", of one seed." if any(len(row.scores) > 1 for row in rows) else ".")
        )
    if any(row.bleu_spread is not None for row in rows):
        notes.append("Several seeds: mean ± standard deviation over the seeds.")
    if any(row.p_value is not None for row in rows):
        notes.append("p: paired bootstrap of BLEU against the baseline; of several seeds, the largest.")
    if any(row.historical is not None for row in rows):
        notes.append(f"{_tokenized_name(rows)}: tokenized BLEU as some papers print it, not comparable with BLEU.")
    if any(score.bleu.lowercased for row in rows for score in row.scores):
        notes.append("BLEU and chrF ignore case (case:lc), as these models write no capitals.")
    if any(row.first.made_from is None for row in rows):
        notes.append(
            f"{OLD}: trained before experiments recorded what they are made from: each seed stands alone, and what it "
            "may differ in is unknown."
        )
    notes += [*_environments(rows), *_hidden_differences(rows)]
    unverified = [name for row, name in zip(rows, row_names(rows), strict=True) if not row.verified]
    if unverified:
        notes.append(
            f"Not verified: {', '.join(unverified)}; the scores do not record the files that they were made from, or "
            "these are not there. Run the stage score again to verify them."
        )
    scores = [score for row in rows for score in row.scores]
    notes += dict.fromkeys(f"Reference: {score.bleu.reference}" for score in scores if score.bleu.reference)
    signatures = {name: metric.signature for score in scores for name, metric in score.metrics.items()}
    order = ("BLEU", "chrF", "tok. BLEU")
    return notes + [f"{name}: {signatures[name]}" for name in order if name in signatures]


def _environments(rows: list[Row]) -> Iterable[str]:
    """Where the seeds of a row were not trained by the same code and libraries."""
    for row, name in zip(rows, shown_names(rows), strict=True):
        keys = dict.fromkeys(key for score in row.scores for key in score.environment)
        values = {key: list(dict.fromkeys(spelled(score.environment.get(key)) for score in row.scores)) for key in keys}
        differing = [f"{key} ({', '.join(found)})" for key, found in values.items() if len(found) > 1]
        if differing:
            yield f"The seeds of {name} were trained with different code or libraries: {', '.join(differing)}."


def _hidden_differences(rows: list[Row]) -> Iterable[str]:
    """Where rows of one setup differ in what neither their architectures nor their flags say."""
    # Here, because it imports torch and fairseq, which other tables need not wait for.
    from fairseq_posenc.arguments import MODEL_FLAGS

    names = dict(zip(map(id, rows), shown_names(rows), strict=True))
    found: dict[str, dict[str, list[str]]] = {}  # by what differs, the rows of each value
    for one, other in combinations((row for row in rows if row.first.made_from is not None), 2):
        if one.first.setup != other.first.setup:
            continue
        flags = [
            name
            for name in one.first.flags.keys() | other.first.flags.keys()
            if one.first.flags.get(name) != other.first.flags.get(name)
        ]
        if "bias-gain" in one.first.flags | other.first.flags:  # `auto` is another number by encoding, and at the input
            flags += ["bias-gain", "input-gain"]
        for difference in differences(one.first.made_from, other.first.made_from):
            if not is_explained(difference, flags, one.first.arch != other.first.arch, MODEL_FLAGS):
                path, *values = difference
                of_value = found.setdefault(" ".join(path), {})
                for row, value in zip((one, other), values, strict=True):
                    here = of_value.setdefault(spelled(value), [])
                    if names[id(row)] not in here:
                        here.append(names[id(row)])
    for what, of_value in found.items():
        listing = "; ".join(f"{value}: {', '.join(of_rows)}" for value, of_rows in of_value.items())
        yield f"Warning: rows differ in more than their names say, {what} ({listing})."


def as_text(rows: Sequence[Row]) -> str:
    """Tables for a terminal, one for each corpus, pair and test set."""
    return "\n".join(
        f"{' '.join(group[0].group)}\n\n{_render(group, 'simple')}\n\n" + "".join(f"{note}\n" for note in _notes(group))
        for group in comparable_groups(rows)
    )


def as_markdown(rows: Sequence[Row]) -> str:
    """The same as Markdown."""
    return "\n".join(
        f"**{' '.join(group[0].group)}**\n\n{_render(group, 'github')}\n\n"
        + "".join(f"- {note}\n" for note in _notes(group))
        for group in comparable_groups(rows)
    )


def _render(rows: list[Row], style: str) -> str:
    headers, cells = _table(rows)
    return tabulate(
        cells,
        headers,
        tablefmt=style,
        disable_numparse=True,
        colalign=("left", *["right"] * (len(headers) - 1)),
    )


def as_csv(rows: Sequence[Row]) -> str:
    """One line a row, every number unrounded and on its own."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        first = row.first
        flags = " ".join(f"--{name} {value}".rstrip() for name, value in first.flags.items())
        seeds = " ".join(str(score.seed) for score in row.scores)
        numbers = [
            row.bleu,
            row.bleu_interval,
            row.bleu_spread,
            row.chrf,
            row.historical,
            first.parameters,
            row.words_per_second,
            row.p_value,
        ]
        others = [metric.signature if metric else "" for metric in (first.chrf, first.historical)]
        signatures = [first.bleu.signature, *others]
        verified = "yes" if row.verified else "no"
        names = [*row.group, first.setup or "", first.name, first.arch, flags, seeds]
        writer.writerow([*names, *numbers, *signatures, first.fingerprint or "", verified])
    return text.getvalue()
