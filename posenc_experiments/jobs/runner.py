"""Runs jobs until none is left; skips those that are done, and waits for those that already run."""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.jobs.job import Job
from posenc_experiments.jobs.progress import Progress

RETRY_SECONDS = 60.0  # wait before submitting again, after the cluster refused a job


class NotAccepted(Exception):
    """The cluster refuses a job for now; the text is its reason."""


class Executor(Protocol):
    """Starts jobs and knows which of them still run."""

    poll_seconds: float
    keeps_jobs: bool  # whether jobs outlive this process

    def submit(self, job: Job, slot: str) -> None: ...

    def alive(self, jobs: list[Job]) -> dict[Job, str]:
        """The jobs that run or are queued, and the state of each."""

    def failure(self, job: Job) -> str | None:
        """Why a finished job failed; None if it succeeded."""

    def stop(self) -> None:
        """Ends the jobs that must not outlive this process."""


class Runner:
    """Runs jobs.

    Args:
        executor: starts them.
        slots: the names of the slots of each pool; each running job takes one.
        progress: shows their states.
        failures: jobs that failed before, and why; needed jobs that are in neither `failures` nor `run` are done.
        together: start no job after a failure, because the other machines of the training have stopped.
    """

    def __init__(
        self,
        executor: Executor,
        slots: dict[str, list[str]],
        progress: Progress,
        failures: Mapping[Job, str] = MappingProxyType({}),
        together: bool = False,
    ) -> None:
        self.together = together
        self.executor, self.slots, self.progress = executor, slots, progress
        self.waiting: list[Job] = []
        self.running: dict[Job, str | None] = {}  # the slot of each job; None if an earlier process started it
        self.done: set[Job] = set()
        self.failures = dict(failures)
        self.not_started: set[Job] = set()
        self.pause_until = 0.0

    def run(self, jobs: Sequence[Job]) -> dict[Job, str]:
        """Runs the jobs; returns those that failed and why, without those that were not started because of them."""
        try:
            self._begin(jobs)
            while self.waiting or self.running:
                self._settle()
                self._start()
                if self.waiting or self.running:
                    time.sleep(self.executor.poll_seconds)
        except BaseException:
            self.executor.stop()
            raise
        return self.failures

    def _begin(self, jobs: Sequence[Job]) -> None:
        self.done.update(need for job in jobs for need in job.needs if need not in jobs and need not in self.failures)
        states = self.executor.alive(list(jobs))
        for job in jobs:
            if job in states:
                self.running[job] = None
                self.progress.set(job, "running", states[job])
            elif job.is_done():
                self.done.add(job)
                self.progress.set(job, "done", "before")
            else:
                self.waiting.append(job)

    def _settle(self) -> None:
        """Updates the states of running jobs, and handles those that have ended."""
        states = self.executor.alive(list(self.running))
        for job in list(self.running):
            if job in states:
                self.progress.set(job, "queued" if states[job].startswith("pending") else "running", states[job])
                continue
            slot = self.running.pop(job)
            if slot is None and not job.is_done():  # an earlier process's job was killed, so it is started again
                self.waiting.insert(0, job)
                self.progress.set(job, "waiting", "was interrupted")
                continue
            if slot is not None:
                self.slots[job.pool].append(slot)
                self.slots[job.pool].sort()
            reason = self.executor.failure(job)
            if reason is None:
                self.done.add(job)
                self.progress.set(job, "done")
            else:
                self.failures[job] = reason
                self.progress.set(job, "failed", reason)

    def _start(self) -> None:
        for job in list(self.waiting):
            failed = [need for need in job.needs if need in self.failures or need in self.not_started]
            if self.together:
                failed += self.failures
            if failed:
                self.waiting.remove(job)
                self.not_started.add(job)
                self.progress.set(job, "failed", f"not started, because {failed[0].title} failed")
            elif self.slots[job.pool] and self.done.issuperset(job.needs) and time.monotonic() >= self.pause_until:
                self._submit(job)

    def _submit(self, job: Job) -> None:
        slot = self.slots[job.pool][0]
        try:
            self.executor.submit(job, slot)
        except NotAccepted as refusal:
            if not self.running:
                raise RecipeError(f"SLURM takes no job: {str(refusal).removesuffix('.')}; see --slurm.") from None
            self.progress.say(f"{job.title}: SLURM takes no more jobs now ({refusal}); will be submitted again later")
            self.pause_until = time.monotonic() + RETRY_SECONDS
            return
        self.slots[job.pool].pop(0)
        self.waiting.remove(job)
        self.running[job] = slot
        self.progress.set(job, "queued" if self.executor.keeps_jobs else "running")
