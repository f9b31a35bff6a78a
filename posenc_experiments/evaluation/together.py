"""Scores of experiments on all their test sets together, as if they were one, or of a half less the other."""

import pandas as pd

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import fingerprint
from posenc_experiments.evaluation.metrics import ALL_TESTS, BLEU
from posenc_experiments.evaluation.significance import resample


def together(results: pd.DataFrame, metric: str = BLEU, test: str = ALL_TESTS) -> pd.DataFrame:
    """The results of the experiments on all their test sets together, in the same order: BLEU and one other metric.

    Args:
        test: one of TOGETHER.

    Raises:
        RecipeError: no experiment has several test sets, or a file is missing.
    """
    rows = []
    several = results.groupby(["corpus", "pair"])["test"].transform("nunique") > 1
    for directory, mine in (results[several] if test == ALL_TESTS else results).groupby("directory", sort=False):
        for name in dict.fromkeys((BLEU, metric)):
            parts = mine[mine["metric"] == name]
            if len(parts) == mine["test"].nunique():
                found = resample(results, directory, test, name)
                row = parts.iloc[0].to_dict() | {"test": test, "score": found.score, "interval": found.interval}
                row |= {"verified": bool(parts["verified"].all()), "source_hash": None}
                rows.append(row | {"reference_hash": fingerprint(list(parts["reference_hash"]))})
    if not rows:
        raise RecipeError("--all-tests: no experiment here has several test sets: leave the option out.")
    return pd.DataFrame(rows, columns=results.columns, dtype=object).astype(results.dtypes)
