"""A step of the pipeline: it runs once for its inputs, records that it is done last, and resumes after a kill."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import forget, locked, set_done


class Step(ABC):
    """A step, the same for all experiments.

    An experiment (`one`) has a `directory`, a `title`, the Run as `run`, the method `is_done` with a step's name, and
    `inputs`, the fingerprint of all that a step's outputs depend on.
    """

    name: str
    #: the step whose outputs this one reads
    after: ClassVar["Step | None"] = None
    #: what an experiment lacks without this step, for the error of the next
    missing: ClassVar[str] = ""
    #: whether to tell the user that it was done before
    says_done: ClassVar[bool] = False
    #: whether it reads prepared data
    reads_data: ClassVar[bool] = False

    @abstractmethod
    def dry_run(self, one: Any) -> None:
        """Prints the commands."""

    @abstractmethod
    def make(self, one: Any, locks: tuple[int, ...]) -> Iterable[Path]:
        """Makes the outputs and returns their paths; the commands that it runs inherit the `locks`."""

    def is_done(self, one: Any) -> bool:
        """Whether the step finished with the current inputs, and its outputs exist."""
        return bool(one.is_done(self.name))

    def say(self, one: Any, text: str) -> None:
        """Prints a line about the step."""
        one.run.say(f"{self.name}: {one.title}: {text}")

    def run(self, one: Any) -> None:
        """Runs the step if it is not done.

        Raises:
            RecipeError: it fails, or the step before it is not done.
        """
        if one.run.dry_run:
            self.dry_run(one)
            return
        if self.is_done(one):
            if self.says_done:
                self.say(one, "done before")
            return
        if self.after is not None and not self.after.is_done(one):
            raise RecipeError(
                f"{one.title} {self.after.missing} (or its settings changed since): run the stage {self.after.name}."
            )
        if self.reads_data:
            one.require_data()
        with locked(one.directory) as lock:
            if not self.is_done(one):  # by another call meanwhile
                forget(one.directory, self.name)
                set_done(one.directory, self.name, one.inputs(self.name), self.make(one, (lock,)))
