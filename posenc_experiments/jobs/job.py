"""One job: a command of the pipeline, run where an executor puts it, known to every runner by its directory.

The directory holds `lock`, held as long as the command runs, even when its runner was killed; `job.json`, what is
known of the latest start; and `job.log`, to which every start appends.
"""

import fcntl
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posenc_experiments.workflow.run import die_with_parent
from posenc_experiments.workflow.stages import fingerprint, read_json, write_json

LOCK, ABOUT, LOG = "lock", "job.json", "job.log"
STARTED = "=== "  # begins the line of a start in the log


@dataclass(eq=False)
class Job:
    """What is to be run, and whether it was."""

    title: str
    directory: Path
    command: list[str]
    is_done: Callable[[], bool]
    locks: list[Path]  # directories that a run.sh would hold for the same work
    pool: str  # which slots it takes one of
    gpus: int = 0
    cpus: int = 1
    here: bool = False  # on this machine whatever the executor, for the network may be nowhere else
    needs: list["Job"] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The same for the same work of the same output directory: by it, jobs of a cluster are recognised."""
        words = "".join(letter if letter.isalnum() or letter in "-_" else "." for letter in self.title)
        return f"{words}.{fingerprint(str(self.directory))[:8]}"

    @property
    def log(self) -> Path:
        return self.directory / LOG

    def about(self) -> dict[str, Any]:
        """What is known of the latest start; empty before it."""
        path = self.directory / ABOUT
        return dict(read_json(path)) if path.is_file() else {}

    def forget(self) -> None:
        """An earlier start says nothing about the next."""
        (self.directory / ABOUT).unlink(missing_ok=True)


class Work:
    """What an executor runs for a job: its command, while holding its lock."""

    def __init__(self, job: Job, slot: str, environment: dict[str, str]) -> None:
        self.directory, self.command, self.slot, self.environment = job.directory, job.command, slot, environment

    def __call__(self) -> None:
        about: dict[str, Any] = {"command": shlex.join(self.command), "slot": self.slot, "host": socket.gethostname()}
        about |= {"process": os.getpid(), "slurm": os.environ.get("SLURM_JOB_ID")}
        if os.environ.get("SUBMITIT_EXECUTOR") == "local":
            signal.signal(signal.SIGTERM, _end)  # submitit ignores it, which on a cluster gives time for requeueing
        with open(self.directory / LOCK, "a") as lock:
            # Not refused but waited for: a runner that was killed may have left the same job behind, unseen.
            fcntl.flock(lock, fcntl.LOCK_EX)
            write_json(self.directory / ABOUT, about)
            code = self._run(lock.fileno())
            write_json(self.directory / ABOUT, {**about, "exit": code})
        if code != 0:
            raise RuntimeError(f"The command ended with {code}; its log is {self.directory / LOG}.")

    def _run(self, lock: int) -> int:
        with open(self.directory / LOG, "ab") as log:
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            log.write(f"{STARTED}{now} on {socket.gethostname()}: {shlex.join(self.command)}\n".encode())
            log.flush()
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                preexec_fn=_prepare_child,
                pass_fds=(lock,),
            )
            try:
                return process.wait()
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()

    def checkpoint(self) -> Any:
        """What submitit requeues before a job's time is up: the same again, for every stage goes on where it was."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _end(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def _prepare_child() -> None:
    # SLURM's warning that time is up goes to every process of a step: submitit answers it, the others work on.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    die_with_parent()


def is_held(lock: Path) -> bool:
    """Whether a process holds this lock."""
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
