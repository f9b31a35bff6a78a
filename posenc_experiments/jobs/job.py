"""A job: stages of one experiment or of the data of one pair, with all that a scheduler needs to run them."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from posenc_experiments.base.markers import fingerprint

Show = Callable[[str], None]


@dataclass(eq=False)
class Job:
    """One piece of work for an executor."""

    title: str
    #: runs the job in this process, in a slot (its GPUs, separated by commas, or a number on the CPU); the second
    #: argument, if any, shows its state
    work: Callable[[str, Show | None], None]
    #: runs the job in another process or on another machine
    command: list[str]
    is_done: Callable[[], bool]
    #: holds lock, log and state of a job that runs in another process
    directory: Path
    #: directories that are locked while it runs
    locks: list[Path]
    pool: str  # name of the slots of which it takes one
    gpus: int = 0
    cpus: int = 1
    here: bool = False  # runs in this process, before all other jobs, with any executor
    needs: list["Job"] = field(default_factory=list)  # jobs that must be done first

    @property
    def name(self) -> str:
        """The name in a cluster's queue; equal for the same job in the same output directory, so that it is found."""
        return f"{re.sub(r'[^A-Za-z0-9_-]', '.', self.title)}.{fingerprint(str(self.directory))[:8]}"

    @property
    def log(self) -> Path:
        """The output of a job in another process; each start appends to it."""
        return self.directory / "job.log"
