"""Runs jobs in SLURM's queue, by submitit."""

import pickle
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.helpers import Checkpointable, clean_env
from submitit.slurm.slurm import SlurmExecutor, SlurmInfoWatcher, SlurmJob

from posenc_experiments.base.done import locked
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.run import ROOT
from posenc_experiments.base.subprocesses import Stopped, die_with_parent, last_words
from posenc_experiments.jobs.job import Job, Scheduler, Show

POLL_SECONDS, NFS_SECONDS = 5.0, 20.0
#: parameters of a job in the queue, unless --slurm gives others
DEFAULTS = {"time": 24 * 60, "signal_delay_s": 120}
REQUEUES = 1000  # a job is requeued before its time is up, until it is done
LISTS = {"setup", "teardown", "srun_args"}
#: parameters that each job sets itself
OWN = {
    *("name", "job_name", "nodes", "tasks_per_node", "ntasks_per_node", "ntasks", "stderr_to_stdout", "output"),
    *("error", "requeue", "additional_parameters"),
}
SlurmJob.watcher = SlurmInfoWatcher(delay_s=60)  # asks sacct once a minute, not in ten


class Work(Checkpointable):
    """The function of a job in the queue: runs its work in a process, which resumes if submitit requeues the job."""

    def __init__(self, work: Callable[[str], None]) -> None:
        self.work, self.directory = work, Path.cwd()  # which paths of a recipe may be relative to

    def __call__(self) -> int:
        """The exit status of the process, whose own message is the last error in the log."""
        words = [sys.executable, "-P", "-m", "posenc_experiments.jobs.work"]
        given = pickle.dumps(self.work)
        run = subprocess.run(words, input=given, cwd=self.directory, preexec_fn=_prepare_child, check=False)
        return run.returncode


def _prepare_child() -> None:
    # SLURM signals every process of a step before time is up; submitit handles the signal, others must ignore it.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    die_with_parent()


class Slurm(Scheduler):
    """SLURM's queue; its jobs outlive this process, and a later call follows those that still run."""

    interrupted = "its jobs stay in SLURM's queue; run again to follow them, or end them by scancel."

    def ready(self) -> AbstractContextManager[object]:
        if not all(map(shutil.which, ("sbatch", "srun", "sacct"))):
            raise RecipeError(
                "--executor slurm: PATH lacks sbatch, srun or sacct; run this on the cluster's login node."
            )
        return locked(self.call.jobs_dir)  # two calls at a time would both submit the same jobs

    def place(self, job: Job) -> str:
        parameters = {name.removeprefix("slurm_"): value for name, value in self.parameters(job).items()}
        return f": as a SLURM job with {', '.join(f'{name}={value}' for name, value in sorted(parameters.items()))}"

    def run(self, job: Job, slot: str, show: Show) -> None:
        """Submits a job, unless it is in the queue, and waits until it has ended; RecipeError if it failed."""
        running = _earlier(job) or self._submit(job)
        while not running.done():
            show(f"{running.state.lower()} as {running.job_id}, log {running.paths.stdout}")
            if self.call.session.stop.wait(POLL_SECONDS):
                raise Stopped
        # Prepared data is done even if the flags of its experiments were refused then.
        status = None if running.exception() else running.result()
        # A network file system may show late what the job wrote.
        deadline = time.monotonic() + (NFS_SECONDS if status == 0 else 0)
        while not (done := job.is_done()) and time.monotonic() < deadline:
            time.sleep(1)
        if status or not done:
            said = last_words(log) if (log := running.paths.stdout).is_file() else "it did not start"
            raise RecipeError(f"{job.title} failed: {said}; the log of the job is {log}.")

    def parameters(self, job: Job) -> dict[str, Any]:
        """submitit's parameters for one job: those of --slurm, overridden by those of the job itself."""
        known = SlurmExecutor._valid_parameters()
        given = {**DEFAULTS, **(self.call.hardware.slurm or {})}
        cpus = int(given.pop("cpus_per_task", self.call.hardware.cpus))
        if job.gpus and not {"gpus", "gres", "gpus_per_node", "gpus_per_task", "num_gpus"} & given.keys():
            given["gpus_per_node"] = job.gpus
        # Since SLURM 22.05, srun does not inherit --cpus-per-task from sbatch.
        given["srun_args"] = [f"--cpus-per-task={cpus}", *given.get("srun_args", [])]
        paths = f"export PYTHONSAFEPATH=1 PYTHONPATH={shlex.quote(str(ROOT))}${{PYTHONPATH:+:$PYTHONPATH}}"
        given["setup"] = [paths, *given.get("setup", [])]
        others = {name.replace("_", "-"): value for name, value in given.items() if name not in known}
        return {
            **{f"slurm_{name}": value for name, value in given.items() if name in known},
            "name": job.title.replace(" ", "."),
            "cpus_per_task": cpus,
            "nodes": 1,
            "tasks_per_node": 1,
            "stderr_to_stdout": True,
            "slurm_additional_parameters": {"requeue": True, **others},
        }

    def _submit(self, job: Job) -> submitit.Job[int]:
        executor = submitit.AutoExecutor(job.directory, cluster="slurm", slurm_max_num_timeout=REQUEUES)
        executor.update_parameters(**self.parameters(job))
        try:
            with clean_env():  # this process may be of a job, too
                return executor.submit(Work(job.work))
        except (FailedJobError, FailedSubmissionError, subprocess.SubprocessError, OSError) as error:
            said = str(error).strip().split("\n")[-1].strip(" .")
            raise RecipeError(f"SLURM takes no job: {said}; see --slurm and --jobs.") from None


def _earlier(job: Job) -> SlurmJob[int] | None:
    """The latest submission of a job, if it has not ended."""
    numbers = [int(path.name.split("_")[0]) for path in job.directory.glob("*_submitted.pkl")]
    latest = SlurmJob[int](job.directory, str(max(numbers))) if numbers else None
    return None if latest is None or latest.done(force_check=True) else latest


def parse_slurm(words: tuple[str, ...]) -> dict[str, Any]:
    """Parses the values of `--slurm`, such as `partition=gpu`; whole numbers and `true` get their Python types."""
    parameters: dict[str, Any] = {}
    for word in words:
        key, _, text = (part.strip() for part in word.partition("="))
        name = key.lstrip("-").replace("-", "_")
        value: int | str = int(text) if text.isdecimal() else True if text == "true" else text
        is_number = isinstance(value, int) or name not in ("cpus_per_task", *DEFAULTS)
        if not name or not text or not is_number or name in OWN:
            raise RecipeError(
                f"--slurm {word}: write KEY=VALUE, such as partition=gpu or time=1440 (minutes), and no key that each "
                f"job sets itself ({', '.join(sorted(OWN))})."
            )
        parameters[name] = [*parameters.get(name, []), text] if name in LISTS else value
    return parameters
