"""Runs jobs, one in each slot at a time."""

import queue
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from functools import partial

from posenc_experiments.base.errors import sentence
from posenc_experiments.jobs.job import Job, Scheduler

STATES = ("done", "running", "waiting", "failed")


def reason(error: Exception) -> str:
    """The sentence for an error that the user can fix; raises others."""
    text = sentence(error)
    if text is None:
        raise error
    return text


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
    call, shown = scheduler.call, dict.fromkeys(jobs, ("waiting", ""))
    slots = call.hardware.slots or [str(number) for number in range(len(jobs))]
    free = queue.Queue[str]()
    for slot in slots:
        free.put(slot)
    futures: dict[Job, Future[None]] = {}

    def show(job: Job, state: str, text: str = "") -> None:
        """Prints a change of a job's state; `text` says more, such as what the cluster says, or why it failed."""
        text = text or state
        if shown[job] != (state, text):
            shown[job] = (state, text)
            counts = Counter(state for state, _ in shown.values())
            states = ", ".join(f"{counts[state]} {state}" for state in STATES)
            call.say(f"{job.title}: {text} [{states}]")

    def run(job: Job) -> None:
        wait([futures[need] for need in job.needs if need in futures])
        lost = [need for need in job.needs if need in failures or (need in futures and shown[need][0] != "done")]
        if call.hardware.nodes > 1:  # the other machines of the training have stopped
            lost += failures
        if lost:
            show(job, "failed", f"not started, because {lost[0].title} failed")
            return
        if job.is_done():
            show(job, "done", "done before")
            return
        slot = free.get()
        show(job, "running")
        try:
            scheduler.run(job, slot, partial(show, job, "running"))
        except Exception as error:
            failures[job] = reason(error)
            show(job, "failed", f"failed: {failures[job]}")
        else:
            show(job, "done")
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
