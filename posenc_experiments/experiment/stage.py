"""The base class of an experiment's stages: each runs once for its inputs, and resumes after a kill."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import forget, locked, set_done
from posenc_experiments.data import prepared
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
    #: whether the stage reads prepared data
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
        if self.reads_data:
            prepared.require(experiment.run)
        with locked(experiment.directory) as lock:
            forget(experiment.directory, self.name)
            outputs = self.make(experiment, (lock,))
            set_done(experiment.directory, self.name, experiment.inputs(self.name), outputs)
