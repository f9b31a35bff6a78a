"""Runs jobs in SLURM's queue, submitted by submitit.

The directory of a job contains `lock`, which is locked while its command runs; `job.json`, which describes the latest
start; and `job.log`, to which every start appends.
"""

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import empty_directory, read_json, write_json
from posenc_experiments.base.run import ROOT, die_with_parent, last_words
from posenc_experiments.jobs.job import Job
from posenc_experiments.jobs.runner import NotAccepted

LOCK, ABOUT = "lock", "job.json"
NFS_DELAY_SECONDS = 20.0  # time for a network file system to show what another machine wrote
# Parameters of a SLURM job, unless --slurm gives others.
SLURM_DEFAULTS = {"time": 24 * 60, "signal_delay_s": 120}
REQUEUES = 1000  # a job is requeued before its time is up, until it is done
#: keys of --slurm whose values are whole numbers, and what to write
NUMBERS = {
    "time": "the time in minutes, such as time=1440",
    "cpus_per_task": "the number of CPUs, such as cpus_per_task=8",
    "signal_delay_s": "the seconds before the time is up, such as signal_delay_s=120",
}
LISTS = {"setup", "teardown", "srun_args"}
#: parameters that each job sets itself, and why
OWN = {
    **dict.fromkeys(("name", "job_name"), "jobs are found in the queue by the names that they are given here"),
    **dict.fromkeys(("nodes", "tasks_per_node", "ntasks_per_node", "ntasks"), "each job has one task on one node"),
    **dict.fromkeys(("stderr_to_stdout", "output", "error"), "the job's directory has its logs"),
    "requeue": "a job is requeued until it is done",
    "additional_parameters": "give each parameter as KEY=VALUE of its own",
}


def about(job: Job) -> dict[str, Any]:
    """The description of a job's latest start; empty before the first."""
    path = job.directory / ABOUT
    return dict(read_json(path)) if path.is_file() else {}


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


class Work:
    """The function that SLURM calls for a job: runs its command while holding its lock."""

    def __init__(self, job: Job) -> None:
        self.directory, self.command, self.log = job.directory, job.command, job.log

    def __call__(self) -> None:
        known: dict[str, Any] = {"command": shlex.join(self.command), "host": socket.gethostname()}
        known |= {"process": os.getpid(), "slurm": os.environ.get("SLURM_JOB_ID")}
        with open(self.directory / LOCK, "a") as lock:
            # Waits for the lock: the same job may still run, submitted by a runner that was killed.
            fcntl.flock(lock, fcntl.LOCK_EX)
            with open(self.log, "ab") as log:
                now = time.strftime("%Y-%m-%d %H:%M:%S")
                log.write(f"=== {now} on {known['host']}: {known['command']}\n".encode())
                log.flush()
                known["log_begins"] = log.tell()
                write_json(self.directory / ABOUT, known)
                code = self._run(log, lock.fileno())
            write_json(self.directory / ABOUT, {**known, "exit": code})
        if code != 0:
            raise RuntimeError(f"The command ended with {code}; its log is {self.log}.")

    def _run(self, log: IO[bytes], lock: int) -> int:
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
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
        """The function that submitit requeues before a job's time is up: the same one, because every stage resumes."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _prepare_child() -> None:
    # SLURM signals every process of a step before time is up; submitit handles the signal, others must ignore it.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    die_with_parent()


class Slurm:
    """Executor for SLURM.

    Jobs are found in the queue by their names, so that a new runner finds those of a killed one. squeue also works on
    clusters without accounting (sacct).
    """

    poll_seconds = 10.0
    keeps_jobs = True

    def __init__(self, parameters: dict[str, Any]) -> None:
        for program in ("sbatch", "srun", "squeue"):
            if shutil.which(program) is None:
                raise RecipeError(
                    f"--executor slurm: there is no {program} on PATH; run this on a login node of the cluster."
                )
        self.parameters = {**SLURM_DEFAULTS, **parameters}
        self.started: set[Job] = set()
        self.queue: dict[str, str] = {}
        self.asked = -self.poll_seconds
        if complaint := self._ask():
            raise RecipeError(f"--executor slurm: squeue fails: {complaint}")

    def submit(self, job: Job, slot: str) -> None:
        from submitit import AutoExecutor
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        (job.directory / ABOUT).unlink(missing_ok=True)  # describes an earlier start
        with _without_slurm_variables():
            folder = empty_directory(job.directory / "submitit")
            executor = AutoExecutor(folder=folder, cluster="slurm", slurm_max_num_timeout=REQUEUES)
            executor.update_parameters(**slurm_parameters(job, self.parameters))
            try:
                executor.submit(Work(job))
            except (FailedJobError, FailedSubmissionError, subprocess.SubprocessError, OSError) as error:
                raise NotAccepted(_last_error(str(error))) from None
        self.started.add(job)
        self.queue[job.name] = "pending"

    def alive(self, jobs: list[Job]) -> dict[Job, str]:
        self._ask()
        states = {job: self.queue[job.name] for job in jobs if job.name in self.queue}
        for job in jobs:
            locks = [job.directory / LOCK, *(directory / ".lock" for directory in job.locks)]
            if job not in states and job not in self.started and any(map(is_held, locks)):
                states[job] = "running since before"
        return states

    def _ask(self) -> str | None:
        """Reads the queue; returns an error if squeue fails, and then keeps the last state."""
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

    def failure(self, job: Job) -> str | None:
        """Why a job that left the queue failed; None if it succeeded."""
        deadline = time.monotonic() + NFS_DELAY_SECONDS
        while not (done := job.is_done()) and about(job).get("exit", 0) == 0 and time.monotonic() < deadline:
            time.sleep(1)
        return None if done else _reason(job)

    def stop(self) -> None:
        """Jobs stay in the queue."""


def _reason(job: Job) -> str:
    known, log = about(job), job.log
    if not known:
        return f"{job.title} failed: it did not start; see {job.directory / 'submitit'}."
    if "exit" not in known:
        return f"{job.title} failed: it was ended from outside (killed, cancelled, or out of memory); see {log}."
    said = last_words(log, known.get("log_begins", 0)) if log.is_file() else "it wrote no log"
    # An error of the pipeline already names the log with details.
    whole = "" if "the whole log is" in said else f"; the whole log is {log}"
    return f"{job.title} failed: {said}{whole}."


def _state(state: str, reason: str) -> str:
    state = state.lower()
    return state if reason in ("None", "") else f"{state} ({reason})"


def slurm_parameters(job: Job, parameters: dict[str, Any]) -> dict[str, Any]:
    """submitit's parameters for one job: those of --slurm, overridden by those of the job itself."""
    from submitit.slurm.slurm import SlurmExecutor

    known = SlurmExecutor._valid_parameters()
    of_submitit = {name: value for name, value in parameters.items() if name in known}
    others = {name: value for name, value in parameters.items() if name not in known}
    cpus = int(of_submitit.pop("cpus_per_task", job.cpus))
    named = {f"slurm_{name}": value for name, value in of_submitit.items()}
    if job.gpus and not {"gpus", "gres", "gpus_per_node", "gpus_per_task", "num_gpus"} & {*of_submitit, *others}:
        named["slurm_gpus_per_node"] = job.gpus
    # Since SLURM 22.05, srun does not inherit --cpus-per-task from sbatch.
    arguments = [f"--cpus-per-task={cpus}", *of_submitit.get("srun_args", [])]
    paths = f"export PYTHONSAFEPATH=1 PYTHONPATH={shlex.quote(str(ROOT))}${{PYTHONPATH:+:$PYTHONPATH}}"
    return {
        **named,
        "name": job.name,
        "cpus_per_task": cpus,
        "nodes": 1,
        "tasks_per_node": 1,
        "stderr_to_stdout": True,
        "slurm_srun_args": arguments,
        "slurm_setup": [paths, *of_submitit.get("setup", [])],
        "slurm_additional_parameters": {
            "requeue": True,
            **{name.replace("_", "-"): value for name, value in others.items()},
        },
    }


def parse_slurm(words: tuple[str, ...]) -> dict[str, Any]:
    """Parses the values of `--slurm`, such as `partition=gpu`; whole numbers and `true` get their Python types."""
    found: dict[str, Any] = {}
    for word in words:
        name, has_value, text = word.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not has_value or not name or not text.strip():
            raise RecipeError(f"--slurm {word}: write KEY=VALUE, such as partition=gpu or time=1440.")
        value: Any = int(text) if text.strip().isdecimal() else True if text == "true" else text.strip()
        if name in OWN:
            raise RecipeError(f"--slurm {word}: {OWN[name]}; leave it out.")
        if name in NUMBERS and not isinstance(value, int):
            raise RecipeError(f"--slurm {word}: write {NUMBERS[name]}.")
        found[name] = [*found.get(name, []), str(value)] if name in LISTS else value
    return found


@contextlib.contextmanager
def _without_slurm_variables() -> Iterator[None]:
    """Removes the variables of the SLURM job that this process may run in, so that its jobs do not inherit them."""
    inherited = "SLURM_JOB_ID" in os.environ
    hidden = [name for name in os.environ if inherited and name.startswith("SLURM_") and name != "SLURM_CONF"]
    values = {name: os.environ.pop(name) for name in hidden}
    try:
        yield
    finally:
        os.environ.update(values)


def _last_error(text: str) -> str:
    """The line of the output of SLURM's programs that names the error."""
    lines = [line.strip() for line in text.split("\n") if line.strip()] or ["it says nothing"]
    of_slurm = [line for line in lines if re.match(r"s[a-z]+: ", line)]
    words = ([line for line in of_slurm if "error:" in line][-1:] or of_slurm[:1] or lines[-1:])[0]
    return words if words.endswith(".") else words + "."
