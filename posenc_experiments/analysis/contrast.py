"""Contrastive accuracy: how often a model prefers the correct target, by phenomenon and distance."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
from scipy.stats import binomtest

from posenc_experiments.analysis.contrastive_sets import Contrast
from posenc_experiments.analysis.targets import Model, Pair, score_targets
from posenc_experiments.evaluation.metrics import CONFIDENCE
from posenc_experiments.evaluation.tables.report import Report, Table

#: the phenomenon of the row of the whole set, and the distance of a row of all distances
ALL = "all"
#: the highest distance of each bucket, and the buckets' names
ENDS = (0, 1, 2, 3, 4, 5, 7, 10, 15, float("inf"))
BUCKETS = ("0", "1", "2", "3", "4", "5", "6-7", "8-10", "11-15", ">15")


def preferences(
    model: Model, contrasts: Sequence[Contrast], normalize: bool, say: Callable[[str], None], cpu: bool = False
) -> list[bool]:
    """Whether the model prefers each correct target: it must be more probable than each contrastive one.

    Args:
        normalize: log-probabilities are divided by the number of tokens.
        say: takes a warning.
        cpu: whether the model computes on the CPU even where there is a GPU.
    """
    groups = [
        [Pair(one.source, target, one.where, before=one.before) for target in (one.correct, *one.contrastives)]
        for one in contrasts
    ]
    pairs = list(dict.fromkeys(pair for group in groups for pair in group))  # contrasts may share a correct target
    values = (one.log_probabilities for one in score_targets(model, pairs, say, cpu))
    scores = {pair: one.mean() if normalize else one.sum() for pair, one in zip(pairs, values, strict=True)}
    return [all(scores[correct] > scores[wrong] for wrong in others) for correct, *others in groups]


def report(
    title: str, names: Sequence[str], contrasts: Sequence[Contrast], right: Sequence[Sequence[bool]], normalize: bool
) -> Report:
    """A table of accuracies, with a column for each model: a row for each phenomenon, in the set's order, then one for
    each bucket of its distances; then one for the whole set.

    Args:
        names: of the models.
        right: for each model, its `preferences`.
    """
    pairs = pd.DataFrame(dict(enumerate(right)))
    distances = [float("nan") if one.distance is None else one.distance for one in contrasts]
    pairs["bucket"] = pd.cut(distances, (-1, *ENDS), labels=BUCKETS)
    parts = []
    for phenomenon, mine in pairs.groupby(pd.Series([one.phenomenon for one in contrasts]), sort=False):
        parts += [(phenomenon, ALL, mine)]
        parts += [(phenomenon, name, part) for name, part in mine.groupby("bucket", observed=True)]
    parts.append((ALL, ALL, pairs))
    data = pd.DataFrame(
        [
            {"model": name, "phenomenon": phenomenon, "distance": distance, **accuracy(part[number])}
            for phenomenon, distance, part in parts
            for number, name in enumerate(names)
        ]
    )
    cells = [shown(*one) for one in data[["accuracy", "low", "high"]].itertuples(index=False)]
    phenomena, buckets, groups = zip(*parts, strict=True)
    columns = {"phenomenon": phenomena, "distance": buckets, "pairs": [f"{len(group):,}" for group in groups]}
    columns |= {name: cells[number :: len(names)] for number, name in enumerate(names)}
    what = "mean" if normalize else "sum"
    notes = [
        f"Accuracy in %: pairs whose correct target has the higher {what} of token log-probabilities; in brackets the "
        "95 % Wilson interval.",
        "Distance in words of the target, or in sentences (ContraPro), as the set gives it.",
    ]
    return Report([Table(columns, notes, title)], data)


def shown(accuracy: float, low: float, high: float) -> str:
    """A share and its interval in %."""
    return f"{100 * accuracy:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def accuracy(right: pd.Series) -> dict[str, float]:
    """The number of pairs, how many are right, and their share with Wilson's score interval."""
    correct, pairs = int(right.sum()), len(right)
    interval = binomtest(correct, pairs).proportion_ci(CONFIDENCE, method="wilson")
    return {"pairs": pairs, "correct": correct, "accuracy": correct / pairs, **interval._asdict()}
