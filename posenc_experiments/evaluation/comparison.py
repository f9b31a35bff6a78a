"""Compares pooled rows with a baseline, or as the questions of a file say."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pandas as pd

from posenc_experiments.base.errors import RecipeError, meant
from posenc_experiments.evaluation.metrics import BLEU, BY_LENGTH, TOKENIZED
from posenc_experiments.evaluation.pooling import full_name, groups_of, long_name, metrics_of, pool, title
from posenc_experiments.evaluation.questions import Question, Questions
from posenc_experiments.evaluation.significance import (
    Jackknifed,
    all_differences,
    jackknife,
    resample,
    sacrebleu_p,
)

#: the figures of a test against a baseline
COMPARED = ["difference", "difference_low", "difference_high", "p_value", "margin_p_value", "comparisons"]
COMPARED += ["verdict", "verdict_low", "verdict_high", "one_seed_p_value"]
#: all columns that `compared` adds to rows
ADDED = (*COMPARED, "documents", "pooled_variance", "is_baseline", "baseline", "comparison")


@dataclass(frozen=True)
class Comparison:
    """How the rows of a table are tested against its baseline; docs/scoring.md explains it."""

    baseline: str
    metric: str = BLEU
    pool_variance: bool = False  # take the variance over seeds as equal in all rows
    margin: float | None = None  # the largest difference that does not matter
    questions: Questions | None = None  # only their comparisons have a verdict; without them the table is one question


def compared_with_baseline(results: pd.DataFrame, test: Comparison) -> pd.DataFrame:
    """Pools results, and compares the rows of each table with its baseline.

    Args:
        test: its baseline is a name, or any part of a name that one row alone has.

    Returns:
        The rows of `pool` with the columns that `compared` adds, which are None in tables without the baseline.

    Raises:
        RecipeError: results are not comparable, or there is no such baseline or metric.
    """
    groups = groups_of(pool(results))
    for number, baseline in find_baselines(groups, test.baseline).items():
        named = replace(test, baseline=groups[number]["shown"][baseline])
        groups[number] = compared(results, groups[number], baseline, named)
    rows = pd.concat(groups, ignore_index=True).astype(object)
    return rows.where(rows.notna(), None)


def find_baselines(groups: Sequence[pd.DataFrame], name: str) -> dict[int, int]:
    """The number of the row with this name in each group of comparable rows that has one, by the group's number.

    If no row has it, its name may be any part of the name that tables show, if no other row has that part.

    Raises:
        RecipeError: no row has this name, or several of a group have it.
    """
    whole = [pd.Series([name in (row.shown, row.name, long_name(row)) for row in rows.itertuples()]) for rows in groups]
    part = [rows["shown"].str.contains(name, regex=False) for rows in groups]
    for named in (whole, part):
        matches = {at: list(rows.index[named[at]]) for at, rows in enumerate(groups) if named[at].any()}
        shown = [groups[at]["shown"][number] for at, numbers in matches.items() for number in numbers]
        if any(len(numbers) > 1 for numbers in matches.values()) or (named is part and len(set(shown)) > 1):
            several = ", ".join(dict.fromkeys(shown))
            raise RecipeError(f"--baseline {name}: several rows have this in their name; name one of {several}.")
        if matches:
            return {at: number for at, (number,) in matches.items()}
    names = list(dict.fromkeys(one for rows in groups for one in rows["shown"]))
    raise RecipeError(
        f"--baseline {name}: there is no such experiment here{meant(name, names)}; there are {', '.join(names)}."
    )


def jackknifed(results: pd.DataFrame, rows: pd.DataFrame, metric: str) -> dict[int, list[Jackknifed]]:
    """A metric of the seeds of comparable rows, by the row's number, without rows of which a seed lacks it.

    Raises:
        RecipeError: a file is missing.
    """
    test = rows["test"].iloc[0]
    scored = results[(results["metric"] == metric) & (results["test"] == test)]
    known = {directory for directory in scored["directory"] if metric != TOKENIZED}  # which has no sentences' scores
    return {
        number: [jackknife(results, directory, test, metric) for directory in directories]
        for number, directories in rows["directories"].items()
        if known.issuperset(directories)
    }


def compared(
    results: pd.DataFrame,
    rows: pd.DataFrame,
    baseline: int,
    test: Comparison,
    seeds: Mapping[int, list[Jackknifed]] | None = None,
) -> pd.DataFrame:
    """Comparable rows with their tests against one of them.

    Rows of which a seed lacks the metric are not tested. Where the row or the baseline has one seed, no test of the
    settings is possible: there is only SacreBLEU's p-value, of the first seed of both.

    Args:
        seeds: what `jackknifed` makes of the rows, if it is known.

    Returns:
        The rows with the columns

        - difference (of the means; None without a test), difference_low and difference_high (its 95 % interval, for
          this comparison alone), p_value (of no difference), margin_p_value (of one as large as the margin);
        - comparisons (how many the question has), verdict, verdict_low, verdict_high (the interval that decides it,
          corrected for all comparisons of the question); None where no question compares the rows;
        - one_seed_p_value, documents (how many the test set has; None if they are not known), pooled_variance (if it
          was asked for), is_baseline, baseline (its full name), comparison (the test).

    Raises:
        RecipeError: the baseline lacks the metric, or a file is missing.
    """
    metric = test.metric
    seeds = jackknifed(results, rows, metric) if seeds is None else seeds
    if baseline not in seeds:
        names = [name for name in metrics_of(rows) if name != TOKENIZED]
        raise RecipeError(
            f"--metric {metric}: not all seeds of {test.baseline} have this score of sentences on {rows['test'][0]}; "
            f"there are {', '.join(names)}."
        )
    others = [number for number in seeds if number != baseline]
    several = [number for number in others if min(len(seeds[number]), len(seeds[baseline])) > 1]
    differences, pooled = all_differences(seeds[baseline], [seeds[number] for number in several], test.pool_variance)
    tests: list[dict[str, Any]] = [{} for _ in range(len(rows))]
    sizes = dict.fromkeys(several, len(several))
    if several and test.questions is not None:
        sizes = _sizes(rows, baseline, test.questions)
    for number, one in zip(several, differences, strict=True):
        low, high = one.interval()
        tests[number] = {"difference": one.value, "difference_low": low, "difference_high": high}
        tests[number] |= {"p_value": one.p_value, "pooled_variance": pooled}
        tests[number] |= {} if test.margin is None else {"margin_p_value": one.margin_p_value(test.margin)}
        if comparisons := sizes.get(number):
            word, low, high = one.verdict(comparisons, test.margin)
            tests[number] |= {"verdict": word, "verdict_low": low, "verdict_high": high, "comparisons": comparisons}
    for number in set(others) - set(several):
        means = [statistics.fmean(one.score for one in seeds[row]) for row in (baseline, number)]
        p_value_of_first = None
        if rows["test"][0] != BY_LENGTH:
            first = [rows["directories"][row][0] for row in (baseline, number)]
            samples = (resample(results, directory, rows["test"][0], metric) for directory in first)
            p_value_of_first = sacrebleu_p(*samples)
        tests[number] = {"difference": means[1] - means[0], "one_seed_p_value": p_value_of_first}
    columns = pd.DataFrame(tests, columns=[*COMPARED, "pooled_variance"], dtype=object)
    return rows.assign(
        **columns.where(columns.notna(), None),
        is_baseline=rows.index == baseline,
        baseline=full_name(next(rows[baseline : baseline + 1].itertuples())),
        comparison=test,
        documents=seeds[baseline][0].documents,
    )


def _sizes(rows: pd.DataFrame, baseline: int, questions: Questions) -> dict[int, int]:
    """For each row that a question compares with the baseline, the number of comparisons of that question."""
    numbers, table = numbers_of(rows, questions), title(rows)
    names = [name for name, number in numbers.items() if number == baseline]
    pairs = ((number, questions.of(table, name, of)) for name, number in numbers.items() for of in names)
    return {number: question.size for number, question in pairs if question is not None}


def numbers_of(rows: pd.DataFrame, questions: Questions) -> dict[str, int]:
    """The number of each comparable row that questions compare, by its name there.

    Names are whole, with all flags, so that it does not matter which other rows are compared.

    Raises:
        RecipeError: several rows have a name.
    """
    wanted, found = questions.names(title(rows)), dict[str, int]()
    for number, row in enumerate(rows.itertuples()):
        for name in sorted(wanted & {str(row.name), full_name(row), long_name(row)}):
            if name in found:
                several = " and ".join(map(long_name, rows.loc[[found[name], number]].itertuples()))
                raise RecipeError(f"--questions: '{name}' is the name of {several}: write one of these in the file.")
            found[name] = number
    return found


class Answer(NamedTuple):
    """What is known of a question: its compared rows, all of its rows, and the names that no experiment has."""

    question: Question
    compared: pd.DataFrame
    rows: pd.DataFrame
    missing: list[str]


def answered(results: pd.DataFrame, questions: Questions) -> list[Answer]:
    """The answers to the questions that have a table in these results.

    Raises:
        RecipeError: no question has one, or a baseline lacks the metric, or several rows have a name.
    """
    groups = {title(rows): rows for rows in groups_of(pool(results))}
    answers = []
    for question in questions.questions:
        parts, own, missing = [pd.DataFrame()], [pd.DataFrame()], [one for one in question.tables if one not in groups]
        for table in (one for one in question.tables if one in groups):
            rows = groups[table]
            numbers = numbers_of(rows, questions)
            named = dict.fromkeys(one for pair in question.comparisons.items() for one in (pair[0], *pair[1]))
            missing += [name for name in named if name not in numbers]
            own.append(rows.loc[[numbers[name] for name in named if name in numbers]])
            seeds = jackknifed(results, own[-1], questions.metric) if len(own[-1]) else {}
            for baseline, others in question.comparisons.items():
                if baseline not in numbers:
                    continue
                chosen = [numbers[one] for one in (baseline, *others) if one in numbers]
                test = Comparison(baseline, questions.metric, margin=questions.margin, questions=questions)
                known = {place: seeds[number] for place, number in enumerate(chosen) if number in seeds}
                parts.append(compared(results, rows.loc[chosen].reset_index(drop=True), 0, test, known)[1:])
        if own[1:]:
            tested = pd.concat(parts, ignore_index=True)
            if len(tested):
                tested["shown"] = list(map(full_name, tested.itertuples()))
            answers.append(Answer(question, tested, pd.concat(own, ignore_index=True), list(dict.fromkeys(missing))))
    if not answers:
        tables = ", ".join(dict.fromkeys(table for question in questions.questions for table in question.tables))
        raise RecipeError(
            f"--questions: no experiment here is of their tables ({tables or 'they have none'}); there are "
            f"{', '.join(groups)}. --all-tests and --by-length make tables of all test sets."
        )
    return answers
