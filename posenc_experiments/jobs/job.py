"""A job: stages of one experiment or of the data of one pair."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Show = Callable[[str], None]


@dataclass(eq=False)
class Job:
    """One piece of work for the pool."""

    title: str
    #: runs the job in this process, in a slot (its GPUs, separated by commas, or a number on the CPU); the second
    #: argument, if any, shows its state
    work: Callable[[str, Show | None], None]
    #: runs the job in another process or on another machine
    command: list[str]
    is_done: Callable[[], bool]
    #: holds what SLURM's job writes
    directory: Path
    gpus: int = 0
    cpus: int = 1
    here: bool = False  # runs in this process, before all other jobs, also with SLURM
    needs: list["Job"] = field(default_factory=list)  # jobs that must be done first
