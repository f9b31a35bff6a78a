"""Runs jobs in SLURM's queue, by submitit."""

import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.helpers import DelayedSubmission, clean_env
from submitit.slurm.slurm import SlurmExecutor, SlurmInfoWatcher, SlurmJob

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.run import ROOT, Stopped, die_with_parent, last_words
from posenc_experiments.jobs.job import Job

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


class Command:
    """The function of a job in the queue: runs a command."""

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def __call__(self) -> int:
        """The exit status of the command, whose own message is the last error in the log."""
        process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, preexec_fn=_prepare_child)
        try:
            return process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()

    def checkpoint(self) -> DelayedSubmission:
        """What submitit requeues before a job's time is up: the same, because every stage resumes."""
        return DelayedSubmission(self)


def _prepare_child() -> None:
    # SLURM signals every process of a step before time is up; submitit handles the signal, others must ignore it.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    die_with_parent()


class Slurm:
    """SLURM's queue; its jobs outlive this process, and a later call follows those that still run.

    Args:
        parameters: those of --slurm.
        show: shows the state of a job.
        stop: is set to follow no job any more.
    """

    def __init__(self, parameters: dict[str, Any], show: Callable[[Job, str], None], stop: threading.Event) -> None:
        for program in ("sbatch", "srun", "sacct"):
            if shutil.which(program) is None:
                raise RecipeError(
                    f"--executor slurm: there is no {program} on PATH; run this on a login node of the cluster."
                )
        self.parameters, self.show, self.stop = parameters, show, stop

    def run(self, job: Job, slot: str) -> None:
        """Submits a job, unless it is in the queue, and waits until it has ended; RecipeError if it failed."""
        running = _earlier(job) or self._submit(job)
        while not running.done():
            self.show(job, f"{running.state.lower()} as {running.job_id}, log {running.paths.stdout}")
            if self.stop.wait(POLL_SECONDS):
                raise Stopped
        # A network file system may show late what the job wrote.
        ended_well = running.exception() is None and running.result() == 0
        deadline = time.monotonic() + (NFS_SECONDS if ended_well else 0)
        while not (done := job.is_done()) and time.monotonic() < deadline:
            time.sleep(1)
        if not done:
            log = running.paths.stdout
            said = last_words(log) if log.is_file() else "it did not start"
            more = "" if "the whole log is" in said else f"; the whole log is {log}"
            raise RecipeError(f"{job.title} failed: {said}{more}.")

    def _submit(self, job: Job) -> Any:
        executor = submitit.AutoExecutor(job.directory, cluster="slurm", slurm_max_num_timeout=REQUEUES)
        executor.update_parameters(**slurm_parameters(job, self.parameters))
        try:
            with clean_env():  # this process may be of a job, too
                return executor.submit(Command(job.command))
        except (FailedJobError, FailedSubmissionError, subprocess.SubprocessError, OSError) as error:
            said = [line.strip() for line in str(error).split("\n") if line.strip()] or ["it says nothing"]
            raise RecipeError(f"SLURM takes no job: {said[-1].rstrip('.')}; see --slurm and --jobs.") from None


def _earlier(job: Job) -> Any:
    """The latest submission of a job, if it has not ended."""
    numbers = [int(path.name.split("_")[0]) for path in job.directory.glob("*_submitted.pkl")]
    found: Any = SlurmJob(job.directory, str(max(numbers))) if numbers else None
    return None if found is None or found.done(force_check=True) else found


def slurm_parameters(job: Job, parameters: dict[str, Any]) -> dict[str, Any]:
    """submitit's parameters for one job: those of --slurm, overridden by those of the job itself."""
    known = SlurmExecutor._valid_parameters()
    given = {**DEFAULTS, **parameters}
    cpus = int(given.pop("cpus_per_task", job.cpus))
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


def parse_slurm(words: tuple[str, ...]) -> dict[str, Any]:
    """Parses the values of `--slurm`, such as `partition=gpu`; whole numbers and `true` get their Python types."""
    found: dict[str, Any] = {}
    for word in words:
        name, _, text = (part.strip() for part in word.partition("="))
        name = name.lstrip("-").replace("-", "_")
        if not name or not text:
            raise RecipeError(f"--slurm {word}: write KEY=VALUE, such as partition=gpu or time=1440 (minutes).")
        if name in OWN:
            raise RecipeError(f"--slurm {word}: each job sets this itself; leave it out.")
        value: Any = int(text) if text.isdecimal() else True if text == "true" else text
        if name in ("cpus_per_task", *DEFAULTS) and not isinstance(value, int):
            raise RecipeError(f"--slurm {word}: write a whole number, of minutes or of seconds or of CPUs.")
        found[name] = [*found.get(name, []), text] if name in LISTS else value
    return found
