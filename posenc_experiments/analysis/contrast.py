"""Contrastive accuracy: how often a model prefers the correct target, by phenomenon and distance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from posenc_experiments.analysis.contrastive_sets import ALL, Contrast
from posenc_experiments.analysis.pairs import Pair
from posenc_experiments.analysis.targets import Model, score_targets, unknown_words
from posenc_experiments.evaluation.metrics import CONFIDENCE
from posenc_experiments.evaluation.report import Column, Report, Table

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


@dataclass(frozen=True)
class Line:
    """A row of the table: a part of the set, and each model's accuracy on it."""

    phenomenon: str
    distance: str
    accuracies: Sequence[Accuracy]


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
    lines = list(_lines(contrasts, found))
    columns = [
        Column[Line]("phenomenon", lambda line: line.phenomenon, left=True),
        Column[Line]("distance", lambda line: line.distance),
        Column[Line]("pairs", lambda line: f"{line.accuracies[0].pairs:,}"),
        *(
            Column[Line](name, lambda line, number=number: str(line.accuracies[number]))  # type: ignore[misc]
            for number, name in enumerate(names)
        ),
    ]
    what = "mean" if normalize else "sum"
    notes = [
        f"Accuracy in %: pairs whose correct target has the higher {what} of token log-probabilities; in brackets the "
        "95 % Wilson interval.",
        "Distance in words of the target, as the set gives it.",
    ]
    records = [
        {
            **{"model": name, "phenomenon": line.phenomenon, "distance": line.distance, "pairs": accuracy.pairs},
            **{"correct": accuracy.correct, "accuracy": accuracy.share},
            **dict(zip(("low", "high"), accuracy.interval, strict=True)),
        }
        for line in lines
        for name, accuracy in zip(names, line.accuracies, strict=True)
    ]
    return Report([Table(lines, columns, notes, title)], records)


def _lines(contrasts: Sequence[Contrast], found: Sequence[Sequence[bool]]) -> Iterator[Line]:
    """For each phenomenon, in the set's order, a line of all its pairs and one of each bucket; then the whole set."""

    def line(phenomenon: str, distance: str, numbers: Sequence[int]) -> Line:
        return Line(
            phenomenon, distance, [Accuracy(sum(of[number] for number in numbers), len(numbers)) for of in found]
        )

    phenomena: dict[str, list[int]] = {}
    for number, contrast in enumerate(contrasts):
        phenomena.setdefault(contrast.phenomenon, []).append(number)
    for phenomenon, numbers in phenomena.items():
        yield line(phenomenon, ALL, numbers)
        buckets: dict[str, list[int]] = {}
        for number in sorted(numbers, key=lambda number: contrasts[number].distance or 0):
            distance = contrasts[number].distance
            if distance is not None:
                buckets.setdefault(bucket(distance), []).append(number)
        for name, members in buckets.items():
            yield line(phenomenon, name, members)
    yield line(ALL, ALL, range(len(contrasts)))
