"""Runs jobs in threads of this process, which start the commands of their stages."""

import threading
import time
from collections.abc import Callable
from functools import partial

from posenc_experiments.base.errors import sentence
from posenc_experiments.jobs.job import Job


class Local:
    """Executor for this machine; no job outlives this process."""

    poll_seconds = 0.1
    keeps_jobs = False

    def __init__(self, stop: threading.Event, show: Callable[[Job, str], None] | None) -> None:
        self.stopping = stop  # ends all commands that run
        self.show = show  # displays the state of a job
        self.threads: dict[Job, threading.Thread] = {}
        self.errors: dict[Job, BaseException] = {}

    def submit(self, job: Job, slot: str) -> None:
        def work() -> None:
            try:
                job.work(slot, None if self.show is None else partial(self.show, job))
            except BaseException as error:
                self.errors[job] = error

        self.threads[job] = threading.Thread(target=work, name=job.name)
        self.threads[job].start()

    def alive(self, jobs: list[Job]) -> dict[Job, str]:
        return {job: "running" for job in jobs if job in self.threads and self.threads[job].is_alive()}

    def failure(self, job: Job) -> str | None:
        """Why a finished job failed, or None; raises unexpected errors."""
        error = self.errors.get(job)
        if error is None:
            return None
        text = sentence(error) if isinstance(error, Exception) else None
        if text is None:
            raise error
        return text

    def stop(self) -> None:
        self.stopping.set()
        while any(thread.is_alive() for thread in self.threads.values()):
            time.sleep(self.poll_seconds)
