"""Runs jobs in a pool of threads, one in each slot at a time."""

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from functools import partial

from posenc_experiments.base.errors import sentence
from posenc_experiments.jobs.job import Job, Scheduler
from posenc_experiments.jobs.progress import Progress


def reason(error: Exception) -> str:
    """The sentence for an error that the user can fix; raises others."""
    found = sentence(error)
    if found is None:
        raise error
    return found


def run_jobs(
    jobs: Sequence[Job],
    slots: Sequence[str],
    scheduler: Scheduler,
    progress: Progress,
    stop: threading.Event,
    failures: dict[Job, str],
    together: bool = False,
) -> None:
    """Runs the jobs that are not done.

    Args:
        jobs: the jobs, each behind those that it needs.
        slots: one job runs in each at a time.
        progress: shows the states of the jobs.
        stop: is set to end all jobs, if this process is interrupted or a job raises an unexpected error.
        failures: jobs that failed before, and why; those that fail now are added, without jobs that are not started
            because of them.
        together: start no job after a failure, because the other machines of the training have stopped.
    """
    done, free = set[Job](), queue.Queue[str]()
    for slot in slots:
        free.put(slot)
    futures: dict[Job, Future[None]] = {}

    def run(job: Job) -> None:
        wait([futures[need] for need in job.needs if need in futures])
        lost = [need for need in job.needs if need in failures or (need in futures and need not in done)]
        lost += failures if together else []
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

    with ThreadPoolExecutor(max(1, len(slots))) as pool:
        try:
            futures.update((job, pool.submit(run, job)) for job in jobs)
            for future in as_completed(futures.values()):
                future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
