"""Pools scores over the seeds of an experiment, and tests them against a baseline."""

import re
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.evaluation.differences import differences, listed
from posenc_experiments.evaluation.metrics import BLEU, TOKENIZED
from posenc_experiments.evaluation.results import Score
from posenc_experiments.evaluation.significance import (
    ALPHA,
    Pooling,
    all_differences,
    holm,
    resample,
    sacrebleu_p,
)

OLD = "*"  # marks experiments that were trained before fingerprints were recorded


class Pooled(NamedTuple):
    """A metric over the seeds of a row."""

    mean: float
    interval: float | None  # half the width of the 95 % bootstrap interval of a single seed
    spread: float | None  # the standard deviation (n - 1) over several seeds

    @classmethod
    def of(cls, values: Sequence[float], interval: float | None = None) -> Self:
        """Pools the values of one or several seeds."""
        return cls(statistics.fmean(values), interval, statistics.stdev(values) if len(values) > 1 else None)

    @property
    def error(self) -> float | None:
        return self.interval if self.spread is None else self.spread

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.error is None else f"{self.mean:.2f} ± {self.error:.2f}"


def mean(pooled: Pooled | None) -> float | None:
    """The mean of a metric that may be missing."""
    return None if pooled is None else pooled.mean


@dataclass(frozen=True)
class Comparison:
    """How the rows of a table are tested against its baseline; docs/scoring.md explains it."""

    baseline: str
    metric: str = BLEU
    pool_variance: bool = False  # take the variance over seeds as equal in all rows
    margin: float | None = None  # differences below it count as none, if it is shown that they are


@dataclass(frozen=True)
class Tested:
    """A row's test against the baseline."""

    test: Comparison
    difference: float  # of the means
    interval: tuple[float, float] | None = None  # of the difference, 95 %; this and what follows need several seeds
    p_value: float | None = None
    holm_p_value: float | None = None  # with Holm's correction
    tests: int = 0  # the tests that the correction counts
    equivalent: bool | None = None  # whether the difference is shown to be within the margin
    pooling: Pooling | None = None  # if the variance over seeds was to be pooled
    sacrebleu_p_value: float | None = None  # for a row or a baseline of one seed

    @property
    def significant(self) -> bool:
        return self.holm_p_value is not None and self.holm_p_value <= ALPHA


@dataclass(frozen=True)
class Row:
    """One setting on one test set, with the scores of its seeds."""

    scores: tuple[Score, ...]
    tested: Tested | None = None  # against the baseline; None for the baseline itself, and without one

    @property
    def first(self) -> Score:
        return self.scores[0]

    def pooled(self, metric: str) -> Pooled | None:
        """A metric pooled over the seeds that have it; None if none has."""
        known = [score.metrics[metric] for score in self.scores if metric in score.metrics]
        interval = known[0].interval if known and len(self.scores) == 1 else None
        return Pooled.of([one.score for one in known], interval) if known else None

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics that a seed has."""
        return list(dict.fromkeys(name for score in self.scores for name in score.metrics))

    @property
    def bleu(self) -> Pooled:
        pooled = self.pooled(BLEU)
        assert pooled is not None  # every score has BLEU
        return pooled

    @property
    def verified(self) -> bool:
        return all(score.verified for score in self.scores)

    @property
    def words_per_second(self) -> float | None:
        known = [score.words_per_second for score in self.scores if score.words_per_second is not None]
        return statistics.fmean(known) if known else None

    @property
    def clipping_distance(self) -> int | None:
        value = self.first.flags.get("clipping-distance")
        return value if isinstance(value, int) else None

    @property
    def group(self) -> tuple[str, str, str]:
        """Corpus, pair and test set, which comparable rows share."""
        return (self.first.corpus, self.first.pair, self.first.test)


def pool(scores: Sequence[Score], test: Comparison | None = None) -> list[Row]:
    """Pools scores to one row for each setting and test set, in the order given.

    Args:
        scores: scores whose `made_from` was not recorded are not pooled: each is a row.
        test: the test of the rows against a baseline, whose name is as tables show it if several rows have it.

    Raises:
        RecipeError: scores of one setting or test set are not comparable, or there is no such baseline or metric.
    """
    settings: dict[tuple[str | None, ...], list[Score]] = {}
    pooled: dict[tuple[str | None, ...], list[Score]] = {}
    for score in scores:
        for other in settings.setdefault(score.setting, []):
            _require_poolable(other, score)
        settings[score.setting].append(score)
        own = () if score.made_from is not None else (str(score.directory),)
        pooled.setdefault((*score.setting, *own), []).append(score)
    rows = [Row(tuple(sorted(group, key=lambda score: score.seed))) for group in pooled.values()]
    groups = comparable_groups(rows)
    for group in groups:
        require_comparable([score for row in group for score in row.scores])
    if test is not None:
        bases = [find_row(group, test.baseline) for group in groups]
        if not any(bases):
            names = ", ".join(dict.fromkeys(name for group in groups for name in row_names(group)))
            raise RecipeError(f"--baseline {test.baseline}: there is no such experiment here; there are {names}.")
        groups = [
            group if base is None else compared_rows(group, base, test)
            for group, base in zip(groups, bases, strict=True)
        ]
    return [row for group in groups for row in group]


def with_seeds(scores: Sequence[Score], seeds: Collection[int]) -> tuple[list[Score], list[str]]:
    """The scores of some seeds, of the settings that have all of these.

    Returns:
        The scores, and the names of the settings that lack a seed, with the test set if they have all on another.

    Raises:
        RecipeError: every setting lacks one.
    """
    found: dict[tuple[str | None, ...], set[int]] = defaultdict(set)
    for score in scores:
        found[score.setting].add(score.seed)
    complete = {setting for setting, its_seeds in found.items() if its_seeds.issuperset(seeds)}
    chosen = [score for score in scores if score.seed in seeds and score.setting in complete]
    if not chosen:
        raise RecipeError(
            f"--seeds {','.join(map(str, seeds))}: no experiment here has all of them; there are "
            f"{', '.join(map(str, sorted({score.seed for score in scores})))}."
        )
    names = {score.long_name for score in chosen}
    lacking = [score for score in scores if score.setting not in complete]
    shown = [one.long_name + (f" on {one.test}" if one.long_name in names else "") for one in lacking]
    return chosen, list(dict.fromkeys(shown))


def _require_poolable(one: Score, other: Score) -> None:
    """RecipeError unless two scores of one setting differ in their seeds alone."""
    if one.made_from is not None and other.made_from is not None:
        found = list(differences(one.made_from, other.made_from))
        if found:
            raise RecipeError(
                f"{one.directory} and {other.directory} are not seeds of one experiment: they differ in "
                f"{listed(found)}; run one of them again with the settings of the other, or compare them separately."
            )
    if one.seed == other.seed:
        raise RecipeError(f"{one.directory} and {other.directory} are the same setting and seed: name one of them.")


def require_comparable(scores: Sequence[Score]) -> None:
    """RecipeError unless scores of one test set have the same signatures, source and reference."""
    seen: dict[str, tuple[str, Score]] = {}
    for score in scores:
        facts = {f"{name} signature": metric.signature for name, metric in score.metrics.items()}
        texts = {"source": score.sources, "reference": score.references}
        facts |= {kind: value for kind, value in texts.items() if value is not None}
        for fact, value in facts.items():
            other, first = seen.setdefault(fact, (value, score))
            if other == value:
                continue
            if fact in texts:
                raise RecipeError(
                    f"{first.directory} and {score.directory} have different {fact}s for {score.test}: they cannot "
                    "be compared; prepare, translate and score both from the same data, or name only one of them."
                )
            raise RecipeError(
                f"{first.directory} and {score.directory} were scored differently on {score.test} ({fact}s {other} and "
                f"{value}): run the stage score of both with the same software, or name only one of them."
            )


def _words(name: str) -> list[str]:
    """An experiment's name in the recipe, and the flags that --set and -- gave it: `shaw-k2`, `--dropout 0.2`..."""
    return re.split(r" (?=--)", name)


def shared_flags(rows: Sequence[Row]) -> list[str]:
    """The flags that --set and -- gave all of these rows, which their title names: `--max-update 300`..."""
    first, *others = [_words(row.first.name)[1:] for row in rows] or [[]]
    return [flag for flag in first if all(flag in other for other in others)]


def title(rows: Sequence[Row]) -> str:
    """The corpus, pair and test set of comparable rows, and the flags that --set and -- gave them all."""
    shared = shared_flags(rows)
    return " ".join(rows[0].group) + (f", all with {' '.join(shared)}" if shared else "")


def row_names(rows: Sequence[Row]) -> list[str]:
    """The names of comparable rows, without flags that their title names.

    They have their setups if these differ, and rows of one name have their flags.
    """
    several, shared = len({row.first.setup for row in rows}) > 1, shared_flags(rows)
    names = [row.first.long_name if several else row.first.name for row in rows]
    names = [" ".join(word for word in _words(name) if word not in shared) for name in names]
    flags: dict[str, set[str]] = defaultdict(set)
    for row, name in zip(rows, names, strict=True):
        flags[name].add(row.first.flag_words)
    return [
        f"{name} ({row.first.flag_words or 'no flags'})" if len(flags[name]) > 1 else name
        for row, name in zip(rows, names, strict=True)
    ]


def shown_names(rows: Sequence[Row]) -> list[str]:
    """The names of comparable rows as shown in tables, with a mark on those of unknown origin."""
    names = row_names(rows)
    shown = []
    for row, name in zip(rows, names, strict=True):
        seed = f" (seed {row.first.seed})" if names.count(name) > 1 else ""
        shown.append(name if row.first.made_from is not None else f"{name}{seed} {OLD}")
    return shown


def comparable_groups(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows in groups of one corpus, pair and test set."""
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    return list(groups.values())


def find_row(rows: Sequence[Row], name: str) -> Row | None:
    """The comparable row with this name; None if there is none.

    Raises:
        RecipeError: several rows have it.
    """
    found: dict[str, Row] = {}
    for shown, row in zip(row_names(rows), rows, strict=True):
        if name in (shown, row.first.name, row.first.long_name):
            found.setdefault(shown, row)
    if len(found) > 1:
        raise RecipeError(
            f"--baseline {name}: several rows on {rows[0].first.test} have this name; name one of {', '.join(found)}."
        )
    return next(iter(found.values()), None)


def compared_rows(rows: Sequence[Row], baseline: Row, test: Comparison) -> list[Row]:
    """Comparable rows with their tests against one of them.

    Rows of which a seed lacks the metric are not tested. Where the row or the baseline has one seed, no test of the
    settings is possible: there is only SacreBLEU's p-value, of two seeds of equal number, or of the first.

    Raises:
        RecipeError: the baseline lacks the metric, or a file is missing.
    """
    known = [row for row in rows if all(test.metric in score.metrics for score in row.scores)]
    if baseline not in known or test.metric == TOKENIZED:
        names = [
            name
            for name in baseline.metrics
            if all(name in score.metrics for score in baseline.scores) and name != TOKENIZED
        ]
        raise RecipeError(
            f"--metric {test.metric}: not all seeds of {baseline.first.name} have this score of sentences on "
            f"{baseline.first.test}; they have {', '.join(names)}."
        )
    resampled = {id(row): [resample(score, test.metric) for score in row.scores] for row in known}
    base = resampled[id(baseline)]
    several = [row for row in known if len(row.scores) > 1 and row is not baseline and len(baseline.scores) > 1]
    found, pooling = all_differences(base, [resampled[id(row)] for row in several], test.pool_variance)
    of_row = dict(zip(map(id, several), zip(found, holm([one.p_value for one in found]), strict=True), strict=True))

    def tested(row: Row) -> Tested | None:
        if row is baseline or row not in known:
            return None
        if id(row) not in of_row:
            pair = _seed_pair(baseline, row)
            p_value = sacrebleu_p(*(resample(score, test.metric) for score in pair))
            means = [statistics.fmean(one.score for one in seeds) for seeds in (base, resampled[id(row)])]
            return Tested(test, means[1] - means[0], sacrebleu_p_value=p_value)
        one, adjusted = of_row[id(row)]
        equivalent = None if test.margin is None else one.is_within(test.margin)
        return Tested(test, one.value, one.interval(), one.p_value, adjusted, len(several), equivalent, pooling)

    return [replace(row, tested=tested(row)) for row in rows]


def _seed_pair(baseline: Row, row: Row) -> tuple[Score, Score]:
    """A seed of each: the one of a row with one seed, and of the other row that with its number, or the first."""
    base, other = baseline.scores, row.scores
    number = (other if len(other) == 1 else base)[0].seed
    one, two = (next((score for score in scores if score.seed == number), scores[0]) for scores in (base, other))
    return one, two
