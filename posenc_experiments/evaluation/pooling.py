"""Pools results over the seeds of an experiment."""

import statistics
from collections.abc import Collection
from typing import Any

import pandas as pd

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.evaluation.metrics import BLEU, OTHER, column_of
from posenc_experiments.evaluation.names import split_shared
from posenc_experiments.evaluation.results import GROUP, SETTING

#: the results that are pooled
POOLED = [*SETTING, "variant"]


def pool(results: pd.DataFrame) -> pd.DataFrame:
    """Pools results to a row for each setting and test set, in the order given.

    Args:
        results: what `read_results` found. Variants of one name are rows of their own.

    Returns:
        A table with the columns

        - corpus, pair, test, setup, name, arch, encoding, flags, variant, seeds (a list), directories (of the seeds),
          shown (its name in a table);
        - METRIC (the mean over seeds), METRIC interval (half the width of the 95 % bootstrap interval of a single
          seed), METRIC spread (the standard deviation, n - 1, over several seeds), METRIC signature, METRIC seeds (how
          many have it), for each metric, as `column_of` names them;
        - depends_on, environments (of the seeds), fingerprint, parameters, words_per_second, references, verified.

    Raises:
        RecipeError: results of one setting or test set are not comparable.
    """
    _require_different(results)
    for _, group in results.groupby(GROUP, sort=False):
        require_comparable(group)
    pooled = [pooled_seeds(seeds) for _, seeds in results.groupby(POOLED, sort=False, dropna=False)]
    rows = pd.DataFrame(pooled, dtype=object)
    groups = [group.assign(shown=row_names(group)) for group in groups_of(rows.where(rows.notna(), None))]
    return pd.concat(groups, ignore_index=True).astype(object)


def pooled_seeds(results: pd.DataFrame) -> dict[str, Any]:
    """The row of the seeds of one setting on one test set."""
    results = results.sort_values("seed", kind="stable")
    seeds = results.drop_duplicates("directory")
    first, speeds = seeds.iloc[0], seeds["words_per_second"].dropna()
    own = ("arch", "encoding", "flags", "depends_on", "fingerprint", "parameters")
    row = {key: first[key] for key in (*POOLED, *own)}
    row |= {"seeds": list(seeds["seed"]), "directories": list(seeds["directory"])}
    row |= {"environments": list(seeds["environment"]), "verified": bool(seeds["verified"].all())}
    row |= {"words_per_second": statistics.fmean(speeds) if len(speeds) else None}
    row |= {"references": list(seeds["reference"].dropna())}
    for metric, scores in results.groupby("metric", sort=False):
        values, interval = list(scores["score"]), float(scores["interval"].iloc[0])
        row[column_of(metric)] = statistics.fmean(values)
        row[column_of(metric, "interval")] = interval if len(seeds) == 1 and interval == interval else None
        row[column_of(metric, "spread")] = statistics.stdev(values) if len(values) > 1 else None
        row[column_of(metric, "signature")] = scores["signature"].iloc[0]
        row[column_of(metric, "seeds")] = len(values)
    return row


def metrics_of(rows: pd.DataFrame) -> list[str]:
    """The names of the metrics that a row has, in the order of columns."""
    signed = [name for name in rows if name.endswith(" signature") and rows[name].notna().any()]
    return [name.removesuffix(" signature").removeprefix(OTHER) for name in signed]


def scored(row: Any, metric: str = BLEU) -> str:
    """A metric of a row with its error: `38.71 ± 0.13`; empty if it has none."""
    value, spread, interval = (row.get(column_of(metric, what)) for what in ("", "spread", "interval"))
    error = interval if spread is None else spread
    return "" if value is None else f"{value:.2f}" if error is None else f"{value:.2f} ± {error:.2f}"


def with_seeds(results: pd.DataFrame, seeds: Collection[int]) -> tuple[pd.DataFrame, list[str]]:
    """The results of some seeds, of the settings that have all of these.

    Returns:
        The results, and the names of the settings that lack a seed.

    Raises:
        RecipeError: every setting lacks one.
    """
    own = results.groupby(POOLED, sort=False, dropna=False)["seed"]
    complete = own.transform(lambda found: set(seeds) <= set(found)).astype(bool)
    chosen = results[complete & results["seed"].isin(seeds)]
    if not len(chosen):
        raise RecipeError(
            f"--seeds {','.join(map(str, seeds))}: no experiment here has all of them; there are "
            f"{', '.join(map(str, sorted(set(results['seed']))))}."
        )
    return chosen, list(dict.fromkeys(map(long_name, results[~complete].itertuples())))


def _require_different(results: pd.DataFrame) -> None:
    """RecipeError if two experiments are of the same setting and seed."""
    seeds = results.drop_duplicates(["directory", "test"])
    for _, same in seeds.groupby([*POOLED, "seed"], sort=False, dropna=False):
        if len(same) > 1:
            one, other, *_ = same["directory"]
            raise RecipeError(f"{one} and {other} are the same setting and seed: name one of them.")


def require_comparable(results: pd.DataFrame) -> None:
    """RecipeError unless results of one test set have the same signatures, source and reference."""
    facts = {f"{name} signature": one["signature"] for name, one in results.groupby("metric", sort=False)}
    facts |= {kind: results[f"{kind}_hash"].dropna() for kind in ("source", "reference")}
    for fact, values in facts.items():
        different = values.drop_duplicates()
        if len(different) > 1:
            first, other, *_ = results["directory"][different.index]
            raise RecipeError(
                f"{first} and {other} have different {fact}s for {results['test'].iloc[0]}: they cannot be compared; "
                "prepare, translate and score both in the same way, or name only one of them."
            )


def full_name(row: Any) -> str:
    """The name of a row or result with the settings of its variant."""
    return f"{row.name} ({row.variant})" if row.variant else str(row.name)


def long_name(row: Any) -> str:
    """The full name of a row or result with its setup, if it has one."""
    return f"{row.setup} {full_name(row)}" if row.setup else full_name(row)


def title(rows: pd.DataFrame) -> str:
    """The corpus, pair and test set of comparable rows."""
    return " ".join(rows[GROUP].iloc[0])


def row_names(rows: pd.DataFrame) -> list[str]:
    """The names of comparable rows without the flags that all share, and with their setups if these differ."""
    short = rows.assign(name=split_shared(rows["name"])[0])
    return list(map(long_name if len(set(rows["setup"])) > 1 else full_name, short.itertuples()))


def groups_of(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows in groups of one corpus, pair and test set."""
    return [group.reset_index(drop=True) for _, group in rows.groupby(GROUP, sort=False)]
