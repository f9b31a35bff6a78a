"""Compares pooled rows with a baseline, or as the questions of a file say."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import pandas as pd

from posenc_experiments.base.errors import RecipeError, meant
from posenc_experiments.evaluation.metrics import BLEU, BY_LENGTH, TOKENIZED
from posenc_experiments.evaluation.statistics.pooling import PooledRow, Setting, pool, signatures_of
from posenc_experiments.evaluation.statistics.questions import Question, Questions
from posenc_experiments.evaluation.statistics.significance import (
    Jackknifed,
    PooledVariance,
    all_differences,
    jackknife,
    resample,
    sacrebleu_p,
)


@dataclass(frozen=True)
class Comparison:
    """How the rows of a table are tested against its baseline; docs/scoring.md explains it."""

    metric: str = BLEU
    pool_variance: bool = False  # take the variance over seeds as equal in all rows
    margin: float | None = None  # the largest difference that does not matter
    questions: Questions | None = None  # only their comparisons have a verdict; without them the table is one question


@dataclass(frozen=True)
class ComparedRow:
    """A pooled row and its test against the baseline; None is what no test says."""

    row: PooledRow
    baseline: PooledRow | None = None
    difference: float | None = None  # of the means
    difference_low: float | None = None  # the 95 % interval, for this comparison alone
    difference_high: float | None = None
    p_value: float | None = None  # of no difference
    margin_p_value: float | None = None  # of a difference as large as the margin
    comparisons: int | None = None  # how many the question has
    verdict: str | None = None  # None if no question compares the rows
    verdict_low: float | None = None  # the interval that decides it, corrected for all comparisons of the question
    verdict_high: float | None = None
    one_seed_p_value: float | None = None  # SacreBLEU's, of the first seed of both, if one of them has one seed

    @property
    def is_baseline(self) -> bool:
        return self.baseline is not None and self.row.setting == self.baseline.setting

    @property
    def baseline_name(self) -> str:
        return "" if self.baseline is None else self.baseline.setting.full_name


#: the figures of a test against a baseline
FIGURES = [one.name for one in fields(ComparedRow)][2:]


@dataclass(frozen=True)
class ComparedTable:
    """Comparable rows with their tests against one baseline, if there is one."""

    rows: Sequence[ComparedRow]
    how: Comparison = Comparison()
    documents: int | None = None  # of the test set, if they are known
    pooled_variance: PooledVariance | None = None

    @property
    def tested(self) -> list[ComparedRow]:
        """The rows with a test of the settings, which needs several seeds of both."""
        return [row for row in self.rows if row.p_value is not None]


def compared_with_baseline(results: pd.DataFrame, baseline: str, how: Comparison = Comparison()) -> list[ComparedTable]:
    """Pools results, and compares the rows of each table that has the baseline with it.

    Args:
        baseline: a name, or any part of a name that one row alone has.

    Raises:
        RecipeError: results are not comparable, or there is no such baseline or metric.
    """
    tables = pool(results)
    return [
        ComparedTable(list(map(ComparedRow, rows)))
        if row is None
        else compared(results, rows, row, how, jackknifed(results, rows, how.metric))
        for rows, row in zip(tables, find_baselines(tables, baseline), strict=True)
    ]


def find_baselines(tables: Sequence[Sequence[PooledRow]], name: str) -> list[PooledRow | None]:
    """The row with this name in each table that has one.

    If no row has it, its name may be any part of the name that tables show, if no other row has that part.

    Raises:
        RecipeError: no row has this name, or several of a table have it.
    """
    whole = [[row for row in rows if name in (row.shown, row.setting.name, row.setting.long_name)] for rows in tables]
    part = [[row for row in rows if name in row.shown] for rows in tables]
    for matches in (whole, part):
        shown = dict.fromkeys(row.shown for rows in matches for row in rows)
        if any(len(rows) > 1 for rows in matches) or (matches is part and len(shown) > 1):
            raise RecipeError(
                f"--baseline {name}: several rows have this in their name; name one of {', '.join(shown)}."
            )
        if shown:
            return [rows[0] if rows else None for rows in matches]
    names = list(dict.fromkeys(row.shown for rows in tables for row in rows))
    raise RecipeError(
        f"--baseline {name}: there is no such experiment here{meant(name, names)}; there are {', '.join(names)}."
    )


def jackknifed(results: pd.DataFrame, rows: Sequence[PooledRow], metric: str) -> dict[Setting, list[Jackknifed]]:
    """A metric of the seeds of comparable rows, without rows of which a seed lacks it.

    Raises:
        RecipeError: a file is missing.
    """
    return {
        row.setting: [jackknife(results, directory, row.setting.test, metric) for directory in row.directories]
        for row in rows
        if metric != TOKENIZED  # which has no sentences' scores
        and metric in row.scores
        and row.scores[metric].seeds == len(row.seeds)
    }


def compared(
    results: pd.DataFrame,
    rows: Sequence[PooledRow],
    baseline: PooledRow,
    how: Comparison,
    seeds: Mapping[Setting, list[Jackknifed]],
) -> ComparedTable:
    """Tests comparable rows against one of them.

    Rows of which a seed lacks the metric are not tested. Where the row or the baseline has one seed, no test of the
    settings is possible: there is only SacreBLEU's p-value.

    Args:
        seeds: what `jackknifed` makes of the rows.

    Raises:
        RecipeError: the baseline lacks the metric, or a file is missing.
    """
    metric, test = how.metric, baseline.setting.test
    if baseline.setting not in seeds:
        names = [name for name in signatures_of(rows) if name != TOKENIZED]
        raise RecipeError(
            f"--metric {metric}: not all seeds of {baseline.shown} have this score of sentences on {test}; "
            f"there are {', '.join(names)}."
        )
    own = seeds[baseline.setting]
    others = [row.setting for row in rows if row.setting in seeds and row.setting != baseline.setting]
    several = [one for one in others if min(len(seeds[one]), len(own)) > 1]
    differences, pooled = all_differences(own, [seeds[one] for one in several], how.pool_variance)
    by_setting = dict(zip(several, differences, strict=True))
    sizes = dict.fromkeys(several, len(several))
    if several and how.questions is not None:
        sizes = _sizes(rows, baseline, how.questions)

    def tested(row: PooledRow) -> ComparedRow:
        if row.setting not in others:
            return ComparedRow(row, baseline)
        if row.setting not in by_setting:
            base, mean = (statistics.fmean(one.score for one in several) for several in (own, seeds[row.setting]))
            p_value = None
            if test != BY_LENGTH:
                p_value = sacrebleu_p(*(resample(results, one.directories[0], test, metric) for one in (baseline, row)))
            return ComparedRow(row, baseline, mean - base, one_seed_p_value=p_value)
        one = by_setting[row.setting]
        margin_p_value = None if how.margin is None else one.margin_p_value(how.margin)
        alone = ComparedRow(row, baseline, one.value, *one.interval(), one.p_value, margin_p_value)
        if comparisons := sizes.get(row.setting):
            word, low, high = one.verdict(comparisons, how.margin)
            return replace(alone, comparisons=comparisons, verdict=word, verdict_low=low, verdict_high=high)
        return alone

    return ComparedTable(list(map(tested, rows)), how, own[0].documents, pooled)


def _sizes(rows: Sequence[PooledRow], baseline: PooledRow, questions: Questions) -> dict[Setting, int]:
    """For each row that a question compares with the baseline, the number of comparisons of that question."""
    named, title = rows_by_name(rows, questions).items(), baseline.setting.title
    return {
        row.setting: question.size
        for other, one in named
        for name, row in named
        if one.setting == baseline.setting and (question := questions.comparing(title, name, other))
    }


def rows_by_name(rows: Sequence[PooledRow], questions: Questions) -> dict[str, PooledRow]:
    """The comparable rows that questions compare, by their names there.

    Names are whole, with all flags, so that it does not matter which other rows are compared.

    Raises:
        RecipeError: several rows have a name.
    """
    wanted, named = questions.names(rows[0].setting.title), dict[str, PooledRow]()
    for row in rows:
        own = row.setting
        for name in sorted(wanted & {own.name, own.full_name, own.long_name}):
            if name in named:
                several = f"{named[name].setting.long_name} and {own.long_name}"
                raise RecipeError(f"--questions: '{name}' is the name of {several}: write one of these in the file.")
            named[name] = row
    return named


class Answer(NamedTuple):
    """What is known of a question."""

    question: Question
    compared: list[ComparedTable]  # without their baselines
    rows: list[list[PooledRow]]  # all of its rows, by table
    missing: list[str]  # the names that no experiment has


def answered(results: pd.DataFrame, questions: Questions) -> list[Answer]:
    """The answers to the questions that have a table in these results.

    Raises:
        RecipeError: no question has one, or a baseline lacks the metric, or several rows have a name.
    """
    tables, answers = {rows[0].setting.title: rows for rows in pool(results)}, []
    how = Comparison(questions.metric, margin=questions.margin, questions=questions)
    for question in questions.questions:
        known = [tables[title] for title in question.tables if title in tables]
        answer = Answer(question, [], [], [title for title in question.tables if title not in tables])
        for rows in known:
            named = rows_by_name(rows, questions)
            names = dict.fromkeys(one for pair in question.comparisons.items() for one in (pair[0], *pair[1]))
            answer.missing.extend(name for name in names if name not in named)
            answer.rows.append([named[name] for name in names if name in named])
            seeds = jackknifed(results, answer.rows[-1], questions.metric)
            # alone, names are whole
            named = {name: replace(row, shown=row.setting.full_name) for name, row in named.items()}
            for baseline, others in question.comparisons.items():
                if baseline in named:
                    chosen = [named[one] for one in (baseline, *others) if one in named]
                    table = compared(results, chosen, chosen[0], how, seeds)
                    answer.compared.append(replace(table, rows=table.rows[1:]))
        if known:
            answers.append(answer._replace(missing=list(dict.fromkeys(answer.missing))))
    if not answers:
        named_tables = ", ".join(dict.fromkeys(table for question in questions.questions for table in question.tables))
        raise RecipeError(
            f"--questions: no experiment here is of their tables ({named_tables or 'they have none'}); there are "
            f"{', '.join(tables)}. --all-tests and --by-length make tables of all test sets."
        )
    return answers
