"""A stage of an experiment: it runs once for its inputs, records that it is done last, and resumes after a kill."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from posenc_experiments.base.done import forget, is_done, locked, set_done
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import fingerprint
from posenc_experiments.data import prepared
from posenc_experiments.experiment.experiment import Experiment


class Stage(ABC):
    """A stage, the same for all experiments: `train`, `average`, `translate` and `score`."""

    name: str
    #: the stage whose outputs this one reads; the order of all stages follows from it
    reads: ClassVar["Stage | None"] = None
    #: whether it reads prepared data
    reads_data: ClassVar[bool] = False

    @property
    def chain(self) -> list["Stage"]:
        """All stages up to this one, in order."""
        return [*(self.reads.chain if self.reads else []), self]

    @abstractmethod
    def settings(self, experiment: Experiment) -> list[object]:
        """What its outputs depend on beside those that it reads."""

    @abstractmethod
    def dry_run(self, experiment: Experiment) -> None:
        """Prints the commands."""

    @abstractmethod
    def make(self, experiment: Experiment, locks: tuple[int, ...]) -> Iterable[Path]:
        """Makes the outputs and returns their paths; the commands that it runs inherit the `locks`."""

    def inputs(self, experiment: Experiment) -> str:
        """The fingerprint of all that its outputs depend on, the earlier stages included."""
        return fingerprint([*([self.reads.inputs(experiment)] if self.reads else []), *self.settings(experiment)])

    def is_done(self, experiment: Experiment) -> bool:
        """Whether the stage finished with the current inputs, and its outputs exist."""
        return is_done(experiment.directory, self.name, self.inputs(experiment))

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
            return
        if self.reads is not None and not self.reads.is_done(experiment):
            raise RecipeError(
                f"{experiment.title}: the stage {self.reads.name} is not done (or its settings changed since): run the "
                f"stage {self.reads.name}."
            )
        if self.reads_data:
            prepared.require(experiment.run)
        with locked(experiment.directory) as lock:
            if not self.is_done(experiment):  # by another call meanwhile
                forget(experiment.directory, self.name)
                set_done(experiment.directory, self.name, self.inputs(experiment), self.make(experiment, (lock,)))
