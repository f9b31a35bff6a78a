"""The base class of an experiment's stages: each runs once for its inputs, and resumes after a kill."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import locked
from posenc_experiments.data import prepare
from posenc_experiments.experiment.experiment import Experiment


class Stage(ABC):
    """A stage of an experiment."""

    name: ClassVar[str]
    #: the stage whose outputs this one reads
    after: ClassVar["Stage | None"] = None
    #: what an experiment lacks without this stage, for the error of the next
    missing: ClassVar[str] = ""
    #: whether to tell the user that it was done before
    says_done: ClassVar[bool] = False
    #: whether the prepared data must not change while the stage runs
    reads_data: ClassVar[bool] = False

    @abstractmethod
    def dry_run(self, experiment: Experiment) -> None:
        """Prints the commands."""

    @abstractmethod
    def make(self, experiment: Experiment, locks: tuple[int, ...]) -> list[Path]:
        """Makes the outputs and returns their paths; the commands that it runs inherit the `locks`."""

    def is_done(self, experiment: Experiment) -> bool:
        """Whether the stage finished with the current inputs, and its outputs exist."""
        return experiment.is_done(self.name)

    def say(self, experiment: Experiment, text: str) -> None:
        """Prints a line about the stage."""
        experiment.run.say(f"{self.name}: {experiment.title}: {text}")

    def restore(self, experiment: Experiment, inputs: str) -> bool:
        """Restores an earlier result with these inputs, if there is one; returns whether it did. The lock is held."""
        return False

    @contextmanager
    def hold(self, experiment: Experiment) -> Iterator[tuple[int, ...]]:
        """Locks the directories that it writes and reads; yields the locks' file descriptors."""
        with ExitStack() as stack:
            data = [stack.enter_context(prepare.in_use(experiment.run))] if self.reads_data else []
            yield (stack.enter_context(locked(experiment.directory)), *data)

    def run(self, experiment: Experiment) -> None:
        """Runs the stage if it is not done.

        Raises:
            RecipeError: it fails, or the stage before it is not done.
        """
        if experiment.run.dry_run:
            self.dry_run(experiment)
            return
        if self.is_done(experiment):
            if self.says_done:
                self.say(experiment, "done before")
            return
        if self.after is not None and not self.after.is_done(experiment):
            raise RecipeError(
                f"{experiment.title} {self.after.missing} (or its settings changed since): run the stage "
                f"{self.after.name}."
            )
        inputs = experiment.inputs(self.name)
        with self.hold(experiment) as locks:
            if self.restore(experiment, inputs):
                return
            experiment.markers.clear(self.name)
            experiment.markers.set_done(self.name, inputs, self.make(experiment, locks))
