"""Runs jobs in a pool of threads, one in each slot at a time."""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from types import MappingProxyType

from posenc_experiments.base.errors import sentence
from posenc_experiments.jobs.job import Job
from posenc_experiments.jobs.progress import Progress


def run_jobs(
    jobs: Sequence[Job],
    slots: Sequence[str],
    start: Callable[[Job, str], None],
    progress: Progress,
    stop: threading.Event,
    failures: Mapping[Job, str] = MappingProxyType({}),
    together: bool = False,
) -> dict[Job, str]:
    """Runs the jobs that are not done.

    Args:
        jobs: the jobs, each behind those that it needs.
        slots: one job runs in each at a time.
        start: runs a job in a slot until it has ended.
        progress: shows the states of the jobs.
        stop: is set to end all jobs, if this process is interrupted or a job raises an unexpected error.
        failures: jobs that failed before, and why; needed jobs that are in neither `failures` nor `jobs` are done.
        together: start no job after a failure, because the other machines of the training have stopped.

    Returns:
        The jobs that failed and why, without those that were not started because of them.
    """
    failed, free = dict(failures), queue.Queue[str]()
    for slot in slots:
        free.put(slot)
    futures: dict[Job, Future[bool]] = {}

    def missing(job: Job) -> Job | None:
        """A job that failed, or was not started, so that this one cannot be either; waits for those that it needs."""
        needed = (need for need in job.needs if need in failed or (need in futures and not futures[need].result()))
        return next(needed, next(iter(failed), None) if together else None)

    def run(job: Job) -> bool:
        """Whether the job is done."""
        if (need := missing(job)) is not None:
            progress.set(job, "failed", f"not started, because {need.title} failed")
            return False
        if job.is_done():
            progress.set(job, "done", "before")
            return True
        slot = free.get()
        progress.set(job, "running")
        try:
            start(job, slot)
        except Exception as error:
            reason = sentence(error)
            if reason is None:
                raise
            failed[job] = reason
            progress.set(job, "failed", reason)
            return False
        finally:
            free.put(slot)
        progress.set(job, "done")
        return True

    with ThreadPoolExecutor(max(1, len(slots))) as pool:
        try:
            futures.update((job, pool.submit(run, job)) for job in jobs)
            for future in as_completed(futures.values()):
                future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed
