"""Runs jobs, one in each slot at a time."""

import queue
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from functools import partial

from posenc_experiments.base.errors import sentence
from posenc_experiments.jobs.job import Job, Scheduler, Show

STATES = ("done", "running", "waiting", "failed")


class Progress:
    """Follows the states of all jobs, and prints a line for each change."""

    def __init__(self, say: Show, jobs: Iterable[Job]) -> None:
        self.say, self.shown = say, dict.fromkeys(jobs, ("waiting", ""))

    def set(self, job: Job, state: str, text: str = "") -> None:
        """Sets a job's state; `text` says more of it, such as what the cluster says, or why it failed."""
        text = text or state
        if self.shown[job] == (state, text):
            return
        self.shown[job] = (state, text)
        found = Counter(state for state, _ in self.shown.values())
        counts = ", ".join(f"{found[state]} {state}" for state in STATES)
        self.say(f"{job.title}: {text} [{counts}]")


def reason(error: Exception) -> str:
    """The sentence for an error that the user can fix; raises others."""
    found = sentence(error)
    if found is None:
        raise error
    return found


def run_jobs(jobs: Sequence[Job], scheduler: Scheduler) -> dict[Job, str]:
    """Runs the jobs that are not done: first those that run here, then the others in the slots of the hardware.

    Args:
        jobs: the jobs, each behind those that it needs.

    Returns:
        The jobs that failed, and why; without jobs that are not started because of them.
    """
    others, failures = [job for job in jobs if not job.here], dict[Job, str]()
    for job in jobs:
        if job.here and not any(need in failures for need in job.needs):
            try:
                job.work("")
            except Exception as error:
                failures[job] = reason(error)
    if others:
        with scheduler.ready():
            _run_in_threads(others, scheduler, failures)
    return failures


def _run_in_threads(jobs: Sequence[Job], scheduler: Scheduler, failures: dict[Job, str]) -> None:
    """Runs jobs in a pool of threads, and adds those that fail to the `failures`.

    If this process is interrupted or a job raises an unexpected error, the session's `stop` ends all jobs.
    """
    call, progress = scheduler.call, Progress(scheduler.call.say, jobs)
    slots = call.hardware.slots or [str(number) for number in range(len(jobs))]
    done, free = set[Job](), queue.Queue[str]()
    for slot in slots:
        free.put(slot)
    futures: dict[Job, Future[None]] = {}

    def run(job: Job) -> None:
        wait([futures[need] for need in job.needs if need in futures])
        lost = [need for need in job.needs if need in failures or (need in futures and need not in done)]
        if call.hardware.nodes > 1:  # the other machines of the training have stopped
            lost += failures
        if lost:
            progress.set(job, "failed", f"not started, because {lost[0].title} failed")
            return
        if job.is_done():
            progress.set(job, "done", "done before")
            done.add(job)
            return
        slot = free.get()
        progress.set(job, "running")
        try:
            scheduler.run(job, slot, partial(progress.set, job, "running"))
        except Exception as error:
            failures[job] = reason(error)
            progress.set(job, "failed", f"failed: {failures[job]}")
        else:
            progress.set(job, "done")
            done.add(job)
        finally:
            free.put(slot)

    with ThreadPoolExecutor(len(slots)) as pool:
        try:
            futures.update((job, pool.submit(run, job)) for job in jobs)
            for future in as_completed(futures.values()):
                future.result()
        except BaseException:
            call.session.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
