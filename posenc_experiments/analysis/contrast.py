"""Contrastive accuracy: how often a model prefers the correct target, by phenomenon and distance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import pandas as pd

from posenc_experiments.analysis.contrastive_sets import ALL, Contrast
from posenc_experiments.analysis.pairs import Pair
from posenc_experiments.analysis.targets import Model, score_targets, unknown_words
from posenc_experiments.evaluation.metrics import CONFIDENCE
from posenc_experiments.evaluation.report import Report, Table

#: the highest distance of each bucket but the last
BUCKETS = (0, 1, 2, 3, 4, 5, 7, 10, 15)


@dataclass(frozen=True)
class Accuracy:
    """The number of pairs that a model gets right, of all."""

    correct: int
    pairs: int

    @property
    def share(self) -> float:
        return self.correct / self.pairs

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's score interval."""
        z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
        n = self.pairs
        middle = (self.share + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(self.share * (1 - self.share) / n + z * z / (4 * n * n))
        return max(0.0, middle - half), min(1.0, middle + half)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.share:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


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
    pairs: list[Pair] = []
    numbers: dict[tuple[str, str], int] = {}  # a correct target may belong to several pairs

    def number_of(contrast: Contrast, target: str) -> int:
        number = numbers.setdefault((contrast.source, target), len(pairs))
        if number == len(pairs):
            pairs.append(Pair(contrast.source, target, contrast.where))
        return number

    sides = [(number_of(one, one.correct), number_of(one, one.contrastive)) for one in contrasts]
    scored = score_targets(model, pairs, progress, cpu)
    if warning := unknown_words(pairs, scored):
        say(warning)
    scores = [one.mean if normalize else one.sum for one in scored]
    return [scores[correct] > scores[contrastive] for correct, contrastive in sides]


def bucket(distance: int) -> str:
    """The name of a distance's bucket."""
    low = -1
    for high in BUCKETS:
        if distance <= high:
            return str(high) if high - low == 1 else f"{low + 1}-{high}"
        low = high
    return f">{low}"


def report(
    title: str, names: Sequence[str], contrasts: Sequence[Contrast], found: Sequence[Sequence[bool]], normalize: bool
) -> Report:
    """A table of accuracies, with a column for each model.

    Args:
        names: of the models.
        found: for each model, its `preferences`.
    """
    parts = list(_parts(contrasts))
    of_models = {
        name: [Accuracy(sum(right[number] for number in numbers), len(numbers)) for _, _, numbers in parts]
        for name, right in zip(names, found, strict=True)
    }
    columns = {
        "phenomenon": [phenomenon for phenomenon, _, _ in parts],
        "distance": [distance for _, distance, _ in parts],
        "pairs": [f"{len(numbers):,}" for _, _, numbers in parts],
        **{name: list(map(str, accuracies)) for name, accuracies in of_models.items()},
    }
    what = "mean" if normalize else "sum"
    notes = [
        f"Accuracy in %: pairs whose correct target has the higher {what} of token log-probabilities; in brackets the "
        "95 % Wilson interval.",
        "Distance in words of the target, as the set gives it.",
    ]
    data = [
        {
            **{"model": name, "phenomenon": phenomenon, "distance": distance, "pairs": accuracies[at].pairs},
            **{"correct": accuracies[at].correct, "accuracy": accuracies[at].share},
            **dict(zip(("low", "high"), accuracies[at].interval, strict=True)),
        }
        for at, (phenomenon, distance, _) in enumerate(parts)
        for name, accuracies in of_models.items()
    ]
    return Report([Table(columns, notes, title)], pd.DataFrame(data))


def _parts(contrasts: Sequence[Contrast]) -> Iterator[tuple[str, str, Sequence[int]]]:
    """A phenomenon, a distance, and the numbers of their pairs: for each phenomenon, in the set's order, all its pairs
    and those of each bucket; then the whole set.
    """
    phenomena: dict[str, list[int]] = {}
    for number, contrast in enumerate(contrasts):
        phenomena.setdefault(contrast.phenomenon, []).append(number)
    for phenomenon, numbers in phenomena.items():
        yield phenomenon, ALL, numbers
        buckets: dict[str, list[int]] = {}
        for number in sorted(numbers, key=lambda number: contrasts[number].distance or 0):
            distance = contrasts[number].distance
            if distance is not None:
                buckets.setdefault(bucket(distance), []).append(number)
        for name, members in buckets.items():
            yield phenomenon, name, members
    yield ALL, ALL, range(len(contrasts))
