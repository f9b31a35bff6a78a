"""Where jobs run: as processes of this machine or in SLURM's queue, both through submitit."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any, Protocol

from posenc_experiments.errors import RecipeError
from posenc_experiments.jobs.job import LOCK, Job, Work, is_held
from posenc_experiments.workflow.run import ROOT
from posenc_experiments.workflow.stages import empty_directory

FOREVER = 60 * 24 * 365  # minutes; submitit ends local jobs at their time limit
# Of a SLURM job, unless --slurm says otherwise; a job is requeued before its time is up, as often as it takes.
SLURM_DEFAULTS = {"time": 24 * 60, "signal_delay_s": 120}
REQUEUES = 1000
LISTS = {"setup", "teardown", "srun_args"}


class Executor(Protocol):
    """Takes jobs and knows which of them still run."""

    poll_seconds: float
    keeps_jobs: bool  # whether jobs go on when the runner is interrupted

    def submit(self, job: Job, slot: str, environment: dict[str, str]) -> None: ...

    def alive(self, jobs: list[Job]) -> dict[Job, str]:
        """Those that run or wait to, and in which state."""

    def stop(self) -> None:
        """Ends what it started."""


class NotAccepted(Exception):
    """The cluster does not take a job now; the text is its reason."""


def _is_locked(job: Job) -> bool:
    return is_held(job.directory / LOCK) or any(is_held(directory / ".lock") for directory in job.locks)


class Local:
    """Processes of this machine, which outlive a runner that is killed."""

    poll_seconds = 0.3
    keeps_jobs = False

    def __init__(self) -> None:
        self.started: dict[Job, Any] = {}

    def submit(self, job: Job, slot: str, environment: dict[str, str]) -> None:
        from submitit import AutoExecutor

        executor = AutoExecutor(folder=empty_directory(job.directory / "submitit"), cluster="local")
        executor.update_parameters(timeout_min=FOREVER, name=job.name, stderr_to_stdout=True)
        self.started[job] = executor.submit(Work(job, slot, environment))

    def alive(self, jobs: list[Job]) -> dict[Job, str]:
        states = {}
        for job in jobs:
            process = self.started.get(job)
            if process is not None and process.state == "RUNNING":
                states[job] = "running"
            elif is_held(job.directory / LOCK) or (process is None and _is_locked(job)):
                states[job] = "running since before"
        return states

    def stop(self) -> None:
        for process in self.started.values():
            if process.state == "RUNNING":
                os.kill(int(process.job_id), signal.SIGTERM)  # its cancel() sends what background processes ignore
        deadline = time.monotonic() + 30
        while self.alive(list(self.started)) and time.monotonic() < deadline:
            time.sleep(0.1)


class Slurm:
    """Jobs of a cluster. They are asked for by name, so a runner that lost everything else still knows them; squeue
    works where no accounting (sacct) is."""

    poll_seconds = 10.0
    keeps_jobs = True

    def __init__(self, parameters: dict[str, Any]) -> None:
        for program in ("sbatch", "srun", "squeue"):
            if shutil.which(program) is None:
                raise RecipeError(
                    f"--executor slurm: there is no {program} on PATH; run this where jobs are submitted."
                )
        self.parameters = {**SLURM_DEFAULTS, **parameters}
        self.started: set[Job] = set()
        self.queue: dict[str, str] = {}
        self.asked = -self.poll_seconds
        if complaint := self._ask():
            raise RecipeError(f"--executor slurm: squeue fails: {complaint}")

    def submit(self, job: Job, slot: str, environment: dict[str, str]) -> None:
        from submitit import AutoExecutor
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        with _outside_jobs():
            folder = empty_directory(job.directory / "submitit")
            executor = AutoExecutor(folder=folder, cluster="slurm", slurm_max_num_timeout=REQUEUES)
            executor.update_parameters(**slurm_parameters(job, self.parameters))
            try:
                executor.submit(Work(job, slot, environment))
            except (FailedJobError, FailedSubmissionError, subprocess.SubprocessError, OSError) as error:
                raise NotAccepted(_last_error(str(error))) from None
        self.started.add(job)
        self.queue[job.name] = "pending"

    def alive(self, jobs: list[Job]) -> dict[Job, str]:
        self._ask()
        states = {job: self.queue[job.name] for job in jobs if job.name in self.queue}
        for job in jobs:
            if job not in states and job not in self.started and _is_locked(job):
                states[job] = "running since before"
        return states

    def _ask(self) -> str | None:
        """Reads the queue; its complaint where SLURM does not answer, and then all is as it was last."""
        if time.monotonic() < self.asked + self.poll_seconds:
            return None
        self.asked = time.monotonic()
        command = ["squeue", "--noheader", "--user", str(os.getuid()), "--format", "%j|%T|%r"]
        try:
            found = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False)
        except (subprocess.SubprocessError, OSError) as error:
            return f"{error}."
        if found.returncode != 0:
            return _last_error(found.stderr)
        rows = [line.strip().split("|", 2) for line in found.stdout.splitlines() if line.count("|") >= 2]
        self.queue = {name: _state(state, reason) for name, state, reason in rows}
        return None

    def stop(self) -> None:
        """Jobs stay in the queue."""


def _state(state: str, reason: str) -> str:
    state = state.lower()
    return state if reason in ("None", "") else f"{state} ({reason})"


def slurm_parameters(job: Job, parameters: dict[str, Any]) -> dict[str, Any]:
    """submitit's parameters of one job: --slurm's, and over them what follows from the job itself."""
    from submitit.slurm.slurm import SlurmExecutor

    known = SlurmExecutor._valid_parameters()
    mine = {name: value for name, value in parameters.items() if name in known}
    others = {name: value for name, value in parameters.items() if name not in known}
    cpus = int(mine.pop("cpus_per_task", job.cpus))
    named = {f"slurm_{name}": value for name, value in mine.items()}
    if job.gpus and not {"gres", "gpus_per_node", "gpus_per_task", "num_gpus"} & {*mine, *others}:
        named["slurm_gpus_per_node"] = job.gpus
    # Since SLURM 22.05, srun does not take over what sbatch was told.
    arguments = [f"--cpus-per-task={cpus}", *mine.get("srun_args", [])]
    paths = f"export PYTHONSAFEPATH=1 PYTHONPATH={shlex.quote(str(ROOT))}${{PYTHONPATH:+:$PYTHONPATH}}"
    return {
        **named,
        "name": job.name,
        "cpus_per_task": cpus,
        "nodes": 1,
        "tasks_per_node": 1,
        "stderr_to_stdout": True,
        "slurm_srun_args": arguments,
        "slurm_setup": [paths, *mine.get("setup", [])],
        "slurm_additional_parameters": {
            "requeue": True,
            **{name.replace("_", "-"): value for name, value in others.items()},
        },
    }


def parse_slurm(words: tuple[str, ...]) -> dict[str, Any]:
    """`--slurm partition=gpu` and the like; numbers and true are taken as such."""
    found: dict[str, Any] = {}
    for word in words:
        name, has_value, text = word.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not has_value or not name or not text.strip():
            raise RecipeError(f"--slurm {word}: write KEY=VALUE, such as partition=gpu or time=1440.")
        value: Any = int(text) if text.strip().isdecimal() else True if text == "true" else text.strip()
        if name == "time" and not isinstance(value, int):
            raise RecipeError(f"--slurm {word}: write the time in minutes, such as time=1440.")
        found[name] = [*found.get(name, []), str(value)] if name in LISTS else value
    return found


@contextlib.contextmanager
def _outside_jobs() -> Iterator[None]:
    """A runner that is itself a SLURM job would hand down what SLURM told it."""
    inherited = "SLURM_JOB_ID" in os.environ
    hidden = [name for name in os.environ if inherited and name.startswith("SLURM_") and name != "SLURM_CONF"]
    values = {name: os.environ.pop(name) for name in hidden}
    try:
        yield
    finally:
        os.environ.update(values)


def _last_error(text: str) -> str:
    """The line of SLURM's programs that says what is wrong."""
    lines = [line.strip() for line in text.split("\n") if line.strip()] or ["it says nothing"]
    told = [line for line in lines if re.match(r"s[a-z]+: ", line)]
    words = ([line for line in told if "error:" in line][-1:] or told[:1] or lines[-1:])[0]
    return words if words.endswith(".") else words + "."
