"""Scores of experiments on all their test sets together, as if they were one."""

import pandas as pd

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import fingerprint
from posenc_experiments.evaluation.metrics import ALL_TESTS, BLEU
from posenc_experiments.evaluation.significance import resample


def all_tests(results: pd.DataFrame, metric: str = BLEU) -> pd.DataFrame:
    """The results of the experiments on all their test sets together, in the same order: BLEU and one other metric.

    Raises:
        RecipeError: experiments of one corpus and pair have different test sets; or none has several; or a file is
            missing.
    """
    firsts: dict[tuple[str, str], pd.DataFrame] = {}
    rows = []
    for directory, mine in results.groupby("directory", sort=False):
        first = firsts.setdefault((mine["corpus"].iloc[0], mine["pair"].iloc[0]), mine)
        wanted, own = (list(dict.fromkeys(one["test"])) for one in (first, mine))
        if wanted != own:
            raise RecipeError(
                f"--all-tests: {first['directory'].iloc[0]} has {', '.join(wanted)}, and {directory} has "
                f"{', '.join(own)}: run the stages translate and score again, or leave one out."
            )
        for name in dict.fromkeys((BLEU, metric)) if len(own) > 1 else ():
            parts = mine[mine["metric"] == name]
            if len(parts) == len(own):
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
