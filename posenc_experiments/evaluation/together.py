"""Scores of experiments on all their test sets together, as if they were one."""

import pandas as pd

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import fingerprint
from posenc_experiments.evaluation.metrics import ALL_TESTS, BLEU
from posenc_experiments.evaluation.significance import resample


def all_tests(results: pd.DataFrame, metric: str = BLEU) -> pd.DataFrame:
    """The results of the experiments on all their test sets together, in the same order: BLEU and one other metric.

    Raises:
        RecipeError: no experiment has several test sets, or a file is missing.
    """
    rows = []
    several = results.groupby(["corpus", "pair"])["test"].transform("nunique") > 1
    for directory, mine in results[several].groupby("directory", sort=False):
        for name in dict.fromkeys((BLEU, metric)):
            parts = mine[mine["metric"] == name]
            if len(parts) == mine["test"].nunique():
                found = resample(results, directory, ALL_TESTS, name)
                together = {
                    "test": ALL_TESTS,
                    **{"score": found.score, "interval": found.interval, "verified": bool(parts["verified"].all())},
                    **{"source_hash": None, "reference_hash": fingerprint(list(parts["reference_hash"]))},
                }
                rows.append(parts.iloc[0].to_dict() | together)
    if not rows:
        raise RecipeError("--all-tests: no experiment here has several test sets: leave the option out.")
    return pd.DataFrame(rows, columns=results.columns, dtype=object).astype(results.dtypes)
