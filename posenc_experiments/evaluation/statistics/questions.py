"""Questions of a comparison, written down before it: which rows are compared with which, on which test sets.

docs/scoring.md shows the form of the file, and docs/questions.yaml is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import yaml

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.read_recipe import StrictLoader
from posenc_experiments.evaluation.metrics import BLEU
from posenc_experiments.evaluation.results import LARGEST

Text = Annotated[str, msgspec.Meta(min_length=1)]
#: a test set by the title of its table, and the two rows
Compared = tuple[str, frozenset[str]]


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """A question: its comparisons are corrected together. Without any, it is one for people only."""

    question: Text
    tables: list[Text] = msgspec.field(default_factory=list)
    comparisons: dict[Text, list[Text]] = msgspec.field(default_factory=dict)
    rule: str = ""  # what decides it
    state: str = ""  # what is known so far

    def __iter__(self) -> Iterator[Compared]:
        for table in self.tables:
            for baseline, rows in self.comparisons.items():
                yield from ((table, frozenset((baseline, row))) for row in rows)

    @property
    def size(self) -> int:
        """The number of comparisons."""
        return len(list(self))


class Questions(msgspec.Struct, forbid_unknown_fields=True):
    """All questions of a file, and the margin and the metric that they are decided by."""

    questions: Annotated[list[Question], msgspec.Meta(min_length=1)]
    margin: Annotated[float, msgspec.Meta(gt=0, lt=LARGEST)] | None = None
    metric: Text = BLEU

    def names(self, table: str) -> set[str]:
        """The names of all rows that are compared on a test set."""
        return {name for question in self.questions for place, pair in question if place == table for name in pair}

    def comparing(self, table: str, one: str, other: str) -> Question | None:
        """The question that compares two rows on a test set; None if none does."""
        compared = (table, frozenset((one, other)))
        return next((question for question in self.questions if compared in question), None)


def read_questions(path: Path) -> Questions:
    """Reads a file of questions.

    Raises:
        RecipeError: it cannot be read, lacks something, or compares two rows on one test set twice.
    """
    try:
        questions = msgspec.convert(yaml.load(path.read_text(encoding="utf-8"), StrictLoader), Questions)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError, RecursionError) as error:
        raise RecipeError(f"--questions {path}: {' '.join(str(error).split())}: correct the file.") from None
    seen = set[Compared]()
    for question in questions.questions:
        if bool(question.tables) != bool(question.comparisons):
            raise RecipeError(f"--questions {path}: '{question.question}' has tables or comparisons only: give both.")
        for table, rows in question:
            names = " and ".join(sorted(rows))
            if len(rows) == 1:
                raise RecipeError(f"--questions {path}: {names} is compared with itself: name another row.")
            if (table, rows) in seen:
                raise RecipeError(
                    f"--questions {path}: {names} are compared twice on {table}: leave them to one question, because "
                    "the correction counts its comparisons."
                )
            seen.add((table, rows))
    return questions
