"""A job: stages of one experiment or of the data of one pair; and the schedulers that run jobs."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from posenc_experiments.base.run import Run

Show = Callable[[str], None]


@dataclass(eq=False)
class Job:
    """One piece of work for a scheduler."""

    title: str
    #: runs the job in this process, in a slot (its GPUs, separated by commas, or a number on the CPU)
    work: Callable[[str], None]
    #: runs the job in another process or on another machine
    command: list[str]
    is_done: Callable[[], bool]
    #: holds what SLURM's job writes
    directory: Path
    gpus: int = 0
    here: bool = False  # runs in this process, before all other jobs, also with SLURM
    needs: list["Job"] = field(default_factory=list)  # jobs that must be done first


class Scheduler(ABC):
    """Where jobs run; called from several threads at a time."""

    #: what happens to the jobs if this process is interrupted
    interrupted: str

    def __init__(self, run: Run) -> None:
        self.call = run

    @abstractmethod
    def run(self, job: Job, slot: str, show: Show) -> None:
        """Runs a job until it has ended, and shows its state; RecipeError if it failed."""

    @abstractmethod
    def dry_run(self, job: Job) -> None:
        """Prints the job and its commands."""

    def ready(self) -> AbstractContextManager[object]:
        """Holds what all jobs need while they run; RecipeError if there is none."""
        return nullcontext()


class Local(Scheduler):
    """Runs jobs in this process, which starts the commands of their stages."""

    interrupted = "run again to resume."

    def run(self, job: Job, slot: str, show: Show) -> None:
        job.work(slot)

    def dry_run(self, job: Job) -> None:
        hardware = self.call.hardware
        several = f": with CUDA_VISIBLE_DEVICES={' or '.join(hardware.slots)}" if hardware.jobs > 1 and job.gpus else ""
        self.call.say(f"# {job.title}{several}")
        job.work("")
