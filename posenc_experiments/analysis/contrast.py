"""Contrastive accuracy: how often a model prefers the correct target, by phenomenon and distance."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

import pandas as pd
from scipy.stats import binomtest

from posenc_experiments.analysis.contrastive_sets import ALL, Contrast
from posenc_experiments.analysis.pairs import Pair
from posenc_experiments.analysis.targets import Model, score_targets, unknown_words
from posenc_experiments.evaluation.metrics import CONFIDENCE
from posenc_experiments.evaluation.report import Report, Table

#: the highest distance of each bucket but the last, and the buckets' names
ENDS = (0, 1, 2, 3, 4, 5, 7, 10, 15)
BUCKETS = ("0", "1", "2", "3", "4", "5", "6-7", "8-10", "11-15", ">15")


def preferences(
    model: Model,
    contrasts: Sequence[Contrast],
    normalize: bool,
    say: Callable[[str], None],
    progress: Callable[[int, int], None] | None = None,
    cpu: bool = False,
) -> list[bool]:
    """Whether the model prefers each correct target: it must be more probable, not as probable.

    Args:
        normalize: log-probabilities are divided by the number of tokens.
        say: takes a warning.
        cpu: whether the model computes on the CPU even where there is a GPU.
    """
    pairs: dict[tuple[str, str], Pair] = {}  # a correct target may belong to several contrasts
    for one in contrasts:
        for target in (one.correct, one.contrastive):
            pairs.setdefault((one.source, target), Pair(one.source, target, one.where))
    wanted = list(pairs.values())
    scored = score_targets(model, wanted, progress, cpu)
    if warning := unknown_words(wanted, scored):
        say(warning)
    scores = {key: one.mean if normalize else one.sum for key, one in zip(pairs, scored, strict=True)}
    return [scores[one.source, one.correct] > scores[one.source, one.contrastive] for one in contrasts]


def bucket(distance: float) -> str:
    """The name of a distance's bucket."""
    return BUCKETS[bisect_left(ENDS, distance)]


def report(
    title: str, names: Sequence[str], contrasts: Sequence[Contrast], found: Sequence[Sequence[bool]], normalize: bool
) -> Report:
    """A table of accuracies, with a column for each model: a row for each phenomenon, in the set's order, then one for
    each bucket of its distances; then one for the whole set.

    Args:
        names: of the models.
        found: for each model, its `preferences`.
    """
    pairs = pd.DataFrame([(one.phenomenon, one.distance) for one in contrasts], columns=["phenomenon", "distance"])
    pairs = pd.concat([pairs, pd.DataFrame(dict(enumerate(found)))], axis=1)
    parts = []
    for phenomenon, mine in pairs.groupby("phenomenon", sort=False):
        known = mine.dropna(subset="distance").sort_values("distance", kind="stable")
        buckets = known.groupby(known["distance"].map(bucket), sort=False)
        parts += [(phenomenon, ALL, mine), *((phenomenon, name, part) for name, part in buckets)]
    parts.append((ALL, ALL, pairs))
    data = pd.DataFrame(
        [
            {"model": name, "phenomenon": phenomenon, "distance": distance, **accuracy(part[number])}
            for phenomenon, distance, part in parts
            for number, name in enumerate(names)
        ]
    )
    cells = [shown(*one) for one in data[["accuracy", "low", "high"]].itertuples(index=False)]
    columns = {
        "phenomenon": [phenomenon for phenomenon, _, _ in parts],
        "distance": [distance for _, distance, _ in parts],
        "pairs": [f"{len(part):,}" for _, _, part in parts],
        **{name: cells[number :: len(names)] for number, name in enumerate(names)},
    }
    what = "mean" if normalize else "sum"
    notes = [
        f"Accuracy in %: pairs whose correct target has the higher {what} of token log-probabilities; in brackets the "
        "95 % Wilson interval.",
        "Distance in words of the target, as the set gives it.",
    ]
    return Report([Table(columns, notes, title)], data)


def shown(accuracy: float, low: float, high: float) -> str:
    """A share and its interval in %."""
    return f"{100 * accuracy:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def accuracy(right: pd.Series) -> dict[str, float]:
    """The number of pairs, how many are right, and their share with Wilson's score interval."""
    correct, pairs = int(right.sum()), len(right)
    interval = binomtest(correct, pairs).proportion_ci(CONFIDENCE, method="wilson")
    shares = {"accuracy": correct / pairs, "low": interval.low, "high": interval.high}
    return {"pairs": pairs, "correct": correct, **shares}
