"""Scores of experiments on all their test sets together, as if they were one, on a half less the other, or on parts."""

import re
from typing import Any

import pandas as pd

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import fingerprint
from posenc_experiments.base.languages import unit
from posenc_experiments.evaluation.metrics import ALL_TESTS, BLEU
from posenc_experiments.evaluation.statistics.significance import in_range, resample, results_on, source_lengths


def together(results: pd.DataFrame, metric: str = BLEU, test: str = ALL_TESTS) -> pd.DataFrame:
    """The results of the experiments on all their test sets together, by corpus and pair: BLEU and one other metric.

    Args:
        test: ALL_TESTS or BY_LENGTH.

    Raises:
        RecipeError: no experiment has several test sets, or a file is missing.
    """
    rows = []
    for _, alike in results.groupby(["corpus", "pair"], sort=False):
        tests = set(alike["test"])
        if test == ALL_TESTS and len(tests) == 1:
            continue
        for directory, mine in alike.groupby("directory", sort=False):
            if lacking := sorted(tests - set(mine["test"])):
                raise RecipeError(f"{directory} has no score of {', '.join(lacking)}: score it, or leave this out.")
            for name in dict.fromkeys((BLEU, metric)):
                parts = mine[mine["metric"] == name]
                if len(parts) == len(tests):
                    row = _row(results, parts.iloc[0], test)
                    row |= {"verified": bool(parts["verified"].all()), "source_hash": None}
                    rows.append(row | {"reference_hash": fingerprint(list(parts["reference_hash"]))})
    if not rows:
        raise RecipeError("--all-tests: no experiment here has several test sets: leave the option out.")
    return pd.DataFrame(rows, columns=results.columns, dtype=object).astype(results.dtypes)


def parts_of_tests(results: pd.DataFrame, metric: str, ranges: str) -> pd.DataFrame:
    """The results on the sentences of each test set whose sources have so many words: BLEU and one other metric.

    Args:
        results: those of single test sets, and of `together` on ALL_TESTS for parts of these.
        ranges: the numbers of words, such as `1-14 15-17 18-`.

    Raises:
        RecipeError: a range is none, or no source is in it, or a file is missing.
    """
    used = dict.fromkeys(ranges.split() or [""], False)
    if faulty := [words for words in used if not re.fullmatch(r"\d+-\d*", words)]:
        raise RecipeError(f"--words: '{faulty[0]}' is not a range of source words, such as 1-14 or 15-.")
    rows = []
    for (directory, test), mine in results.groupby(["directory", "test"], sort=False):
        lengths = source_lengths(results_on(results, directory, test, mine["metric"].iloc[0]))
        counted = unit(mine["pair"].iloc[0].split("-")[0])
        scores = mine[mine["metric"].isin((BLEU, metric))]
        for words in used:
            if number := int(in_range(lengths, words).sum()):
                used[words] = True
                part = f"{test}, {words} {counted}, {number:,} of {len(lengths):,} sentences"
                rows += [_row(results, one, part) for _, one in scores.iterrows()]
    if empty := [words for words, is_used in used.items() if not is_used]:
        raise RecipeError(f"--words: no source here has {empty[0]} words: leave this range out.")
    return pd.DataFrame(rows, columns=results.columns, dtype=object).astype(results.dtypes)


def _row(results: pd.DataFrame, row: pd.Series, test: str) -> dict[str, Any]:
    """A row of results with the score on another test set."""
    resampled = resample(results, row["directory"], test, row["metric"])
    return row.to_dict() | {"test": test, "score": resampled.score, "interval": resampled.interval}
