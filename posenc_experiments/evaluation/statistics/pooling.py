"""Pools results over the seeds of an experiment."""

import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.evaluation.metrics import BLEU
from posenc_experiments.evaluation.results import GROUP, NAMED, Result


@dataclass(frozen=True)
class Setting:
    """The identity of a row: a setting on a test set."""

    corpus: str
    pair: str
    test: str
    setup: str | None
    name: str
    variant: str = ""

    @property
    def title(self) -> str:
        """The title of its table."""
        return f"{self.corpus} {self.pair} {self.test}"

    @property
    def full_name(self) -> str:
        """The name with the settings of its variant."""
        return f"{self.name} ({self.variant})" if self.variant else self.name

    @property
    def long_name(self) -> str:
        """The full name with the setup, if there is one."""
        return f"{self.setup} {self.full_name}" if self.setup else self.full_name


#: what results of one setting share
POOLED = [*NAMED, "variant"]


@dataclass(frozen=True)
class PooledScore:
    """A metric of a row: its mean over the seeds that have it, and its error."""

    mean: float
    interval: float | None = None  # half the width of the 95 % bootstrap interval, of a single seed
    spread: float | None = None  # the standard deviation over several seeds (n - 1)
    signature: str = ""
    seeds: int = 1  # how many have the metric

    @property
    def error(self) -> float | None:
        return self.interval if self.spread is None else self.spread

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.error is None else f"{self.mean:.2f} ± {self.error:.2f}"


@dataclass(frozen=True)
class PooledRow:
    """The seeds of one setting on one test set."""

    setting: Setting
    arch: str
    encoding: str
    flags: str
    shown: str  # its name in a table
    seeds: Sequence[int]
    scores: Mapping[str, PooledScore]  # by metric
    parameters: int | None = None
    words_per_second: float | None = None
    fingerprint: str = ""
    depends_on: Any = None
    verified: bool = True
    # of the seeds
    directories: Sequence[Path] = ()
    environments: Sequence[Any] = ()
    references: Sequence[str] = ()

    @property
    def bleu(self) -> PooledScore:
        return self.scores[BLEU]


def pool(results: pd.DataFrame) -> list[list[PooledRow]]:
    """Pools what `read_results` found: for each corpus, pair and test set, a row for each setting, in the order given.

    Variants of one name are rows of their own.

    Raises:
        RecipeError: results of one setting or test set are not comparable.
    """
    tables = []
    for _, table in results.groupby(GROUP, sort=False):
        rows = [pooled_seeds(seeds) for _, seeds in table.groupby(POOLED, sort=False, dropna=False)]
        require_comparable(table)
        several = len({row.setting.setup for row in rows}) > 1
        short = [
            replace(row.setting, name=name)
            for row, name in zip(rows, split_shared(row.setting.name for row in rows)[0], strict=True)
        ]
        names = [one.long_name if several else one.full_name for one in short]
        tables.append([replace(row, shown=name) for row, name in zip(rows, names, strict=True)])
    return tables


def pooled_seeds(results: pd.DataFrame) -> PooledRow:
    """The row of the seeds of one setting on one test set; RecipeError if a seed is there twice."""
    results = results.sort_values("seed", kind="stable")
    seeds = results.drop_duplicates("directory")
    repeated = seeds["directory"][seeds["seed"].duplicated(keep=False)]
    if len(repeated):
        one, other, *_ = repeated
        raise RecipeError(f"{one} and {other} are the same setting and seed: name one of them.")
    first, speeds = next(seeds.itertuples()), seeds["words_per_second"].dropna()
    scores = {}
    for metric, scored in results.groupby("metric", sort=False):
        values, interval = list(scored["score"]), float(scored["interval"].iloc[0])
        scores[metric] = PooledScore(
            statistics.fmean(values),
            interval if len(seeds) == 1 and interval == interval else None,
            statistics.stdev(values) if len(values) > 1 else None,
            scored["signature"].iloc[0],
            len(values),
        )
    return PooledRow(
        setting_of(first),
        **{
            key: getattr(first, key) for key in ("arch", "encoding", "flags", "parameters", "fingerprint", "depends_on")
        },
        shown=first.name,
        seeds=list(seeds["seed"]),
        scores=scores,
        words_per_second=statistics.fmean(speeds) if len(speeds) else None,
        verified=bool(seeds["verified"].all()),
        directories=list(seeds["directory"]),
        environments=list(seeds["environment"]),
        references=list(seeds["reference"].dropna()),
    )


def setting_of(result: Result) -> Setting:
    """The setting of a result."""
    return Setting(*(getattr(result, key) for key in POOLED))


def signatures_of(rows: Iterable[PooledRow]) -> dict[str, list[str]]:
    """The signatures of each metric that some rows have, in the order of columns; comparable rows have the same."""
    signatures: dict[str, list[str]] = {}
    for metric, score in (item for row in rows for item in row.scores.items()):
        if score.signature not in signatures.setdefault(metric, []):
            signatures[metric].append(score.signature)
    return signatures


def with_seeds(results: pd.DataFrame, seeds: Collection[int]) -> tuple[pd.DataFrame, list[str]]:
    """The results of some seeds, of the settings that have all of these.

    Returns:
        The results, and the names of the settings that lack a seed.

    Raises:
        RecipeError: every setting lacks one.
    """
    own = results.groupby(POOLED, sort=False, dropna=False)["seed"]
    complete = own.transform(lambda having: set(seeds) <= set(having)).astype(bool)
    chosen = results[complete & results["seed"].isin(seeds)]
    if not len(chosen):
        raise RecipeError(
            f"--seeds {','.join(map(str, seeds))}: no experiment here has all of them; there are "
            f"{', '.join(map(str, sorted(set(results['seed']))))}."
        )
    return chosen, list(dict.fromkeys(setting_of(one).long_name for one in results[~complete].itertuples()))


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


def split_shared(names: Iterable[str]) -> tuple[list[str], str]:
    """The names without the flags that all of them have, which stand above a table, and these flags.

    Names stay as they are if different ones would become equal.
    """
    whole = list(names)
    parts = [re.split(r" (?=--[a-z])", name) for name in whole]
    shared = [flag for flag in parts[0][1:] if all(flag in flags for _, *flags in parts)]
    short = [" ".join([name, *(flag for flag in flags if flag not in shared)]) for name, *flags in parts]
    if len(set(short)) < len(set(whole)):
        return whole, ""
    return short, " ".join(shared)
