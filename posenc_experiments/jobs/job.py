"""A job: the stages of one experiment, or of the data of one pair, and what is needed to run them elsewhere."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from posenc_experiments.base.markers import fingerprint

Show = Callable[[str], None]


@dataclass(eq=False)
class Job:
    """What is to be run, and whether it was."""

    title: str
    #: runs it in this process, in a slot (the GPUs that it may use, with commas between them, or a number on the CPU),
    #: and shows its state by the second argument, if that is not None
    work: Callable[[str, Show | None], None]
    #: runs it in another process or on another machine
    command: list[str]
    is_done: Callable[[], bool]
    #: holds the files of a job that runs elsewhere
    directory: Path
    #: directories that are locked while it runs
    locks: list[Path]
    pool: str  # which slots it takes one of
    gpus: int = 0
    cpus: int = 1
    here: bool = False  # in this process, before all others, whatever the executor
    needs: list["Job"] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The same for the same work of the same output directory: a cluster's queue is searched for it."""
        return f"{re.sub(r'[^A-Za-z0-9_-]', '.', self.title)}.{fingerprint(str(self.directory))[:8]}"

    @property
    def log(self) -> Path:
        """What a job that runs elsewhere printed, each start below the one before."""
        return self.directory / "job.log"
