"""A job: stages of one experiment or of the data of one pair; and the schedulers that run jobs."""

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
    #: runs the job in a slot (its GPUs, separated by commas, or a number on the CPU), in this process or, pickled, in
    #: another one; what was stopped resumes
    work: Callable[[str], None]
    is_done: Callable[[], bool]
    #: holds what SLURM's job writes
    directory: Path
    gpus: int = 0
    here: bool = False  # runs in this process, before all other jobs, also with SLURM
    needs: list["Job"] = field(default_factory=list)  # jobs that must be done first


class Scheduler:
    """Runs jobs in this process, from several threads at a time; another scheduler overrides what it does otherwise."""

    #: what happens to the jobs if this process is interrupted
    interrupted = "run again to resume."

    def __init__(self, run: Run) -> None:
        self.call = run

    def run(self, job: Job, slot: str, show: Show) -> None:
        """Runs a job until it has ended, and shows its state; RecipeError if it failed."""
        job.work(slot)

    def dry_run(self, job: Job) -> None:
        """Prints the job and its commands."""
        self.call.say(f"# {job.title}{self.place(job)}")
        job.work("")

    def place(self, job: Job) -> str:
        """Where a job would run, for --dry-run."""
        hardware = self.call.hardware
        return f": with CUDA_VISIBLE_DEVICES={' or '.join(hardware.slots)}" if hardware.jobs > 1 and job.gpus else ""

    def ready(self) -> AbstractContextManager[object]:
        """Holds what all jobs need while they run; RecipeError if there is none."""
        return nullcontext()
