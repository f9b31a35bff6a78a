"""Runs jobs until none is left: those that still run are waited for, those that are done are passed over."""

import time
from collections import defaultdict

from posenc_experiments.errors import RecipeError
from posenc_experiments.jobs.executors import Executor, Local, NotAccepted
from posenc_experiments.jobs.job import LOCK, STARTED, Job, is_held
from posenc_experiments.jobs.progress import Progress
from posenc_experiments.workflow.plan import TRAIN
from posenc_experiments.workflow.run import last_words

RETRY_SECONDS = 60.0  # after a cluster took no more jobs
GRACE_SECONDS = 20.0  # in which a network file system shows what another machine wrote


class Runner:
    """`slots` are what jobs run in at a time: of each pool, the names of its free ones."""

    def __init__(self, executor: Executor, slots: dict[str, list[str]], progress: Progress) -> None:
        self.executor, self.slots, self.progress = executor, slots, progress
        self.local = executor if isinstance(executor, Local) else Local()
        self.waiting: list[Job] = []
        self.running: dict[Job, str | None] = {}  # and the slot that each holds
        self.found: set[Job] = set()  # jobs that an earlier runner left running
        self.done: set[Job] = set()
        self.failures: dict[Job, str] = {}
        self.pause_until = 0.0

    def run(self, jobs: list[Job]) -> dict[Job, str]:
        """Why jobs failed; the others are done."""
        try:
            self._begin(jobs)
            while self.waiting or self.running:
                self._settle()
                self._start()
                if self.waiting or self.running:
                    time.sleep(self._poll_seconds())
        except BaseException:
            self.local.stop()
            self.executor.stop()
            raise
        return self.failures

    def _begin(self, jobs: list[Job]) -> None:
        states = self._alive(jobs)
        dropped: set[Job] = set()
        for job in reversed(jobs):  # what is needed stands before what needs it
            if job in states:
                self._take_over(job)
            elif job.pool != TRAIN and not any(job in other.needs for other in self.waiting):
                self.progress.drop(job)
                dropped.add(job)
                self.done.add(job)  # or the trainings that need it would not run or be done
            else:
                job.forget()
                if job.is_done():
                    self.done.add(job)
                else:
                    self.waiting.insert(0, job)
        for job in jobs:
            if job in states:
                self._show(job, states[job])
            elif job in self.done and job not in dropped:
                self.progress.set(job, "done", "before")

    def _take_over(self, job: Job) -> None:
        """An earlier runner's job: it keeps its slot."""
        slot = job.about().get("slot")
        if not is_held(
            job.directory / LOCK
        ):  # somebody's run.sh, or not yet begun: what is known is of an earlier start
            job.forget()
        self.running[job] = slot if slot in self.slots[job.pool] else None
        if slot in self.slots[job.pool]:
            self.slots[job.pool].remove(slot)
        self.found.add(job)

    def _show(self, job: Job, state: str) -> None:
        self.progress.set(job, "queued" if state.startswith("pending") else "running", state)

    def _alive(self, jobs: list[Job]) -> dict[Job, str]:
        """Each job is asked for where it runs."""
        groups: dict[Executor, list[Job]] = defaultdict(list)
        for job in jobs:
            groups[self._executor(job)].append(job)
        return {job: state for executor, group in groups.items() for job, state in executor.alive(group).items()}

    def _executor(self, job: Job) -> Executor:
        return self.local if job.here else self.executor

    def _poll_seconds(self) -> float:
        return min(self._executor(job).poll_seconds for job in (*self.running, *self.waiting))

    def _settle(self) -> None:
        """Finds out what became of the jobs that no longer run."""
        states = self._alive(list(self.running))
        for job in list(self.running):
            if job in states:
                self._show(job, states[job])
                continue
            done = self._is_done(job)
            slot = self.running.pop(job)
            if slot is not None:
                self.slots[job.pool].append(slot)
                self.slots[job.pool].sort()
            if done:
                self.done.add(job)
                self.progress.set(job, "done")
            elif job in self.found and "exit" not in job.about():
                self.found.discard(job)  # it was killed with or after its runner: goes on where it was
                self.waiting.insert(0, job)
                self.progress.set(job, "waiting", "was interrupted")
            else:
                self._fail(job, _reason(job))

    def _is_done(self, job: Job) -> bool:
        deadline = time.monotonic() + (GRACE_SECONDS if self.executor.keeps_jobs and not job.here else 0.0)
        while not (done := job.is_done()) and job.about().get("exit", 0) == 0 and time.monotonic() < deadline:
            time.sleep(1)
        return done

    def _fail(self, job: Job, reason: str) -> None:
        self.failures[job] = reason
        self.progress.set(job, "failed")

    def _start(self) -> None:
        for job in list(self.waiting):
            failed = [need for need in job.needs if need in self.failures]
            if failed:
                self.waiting.remove(job)
                self._fail(job, f"{job.title} was not started, because {failed[0].title} failed.")
            elif self.slots[job.pool] and self.done.issuperset(job.needs) and time.monotonic() >= self.pause_until:
                self._submit(job)

    def _submit(self, job: Job) -> None:
        slot = self.slots[job.pool][0]
        on_gpu = job.pool == TRAIN and job.gpus and not self.executor.keeps_jobs
        try:
            self._executor(job).submit(job, slot, {"CUDA_VISIBLE_DEVICES": slot} if on_gpu else {})
        except NotAccepted as refusal:
            if not self.running:
                raise RecipeError(f"SLURM takes no job: {str(refusal).removesuffix('.')}; see --slurm.") from None
            self.progress.say(f"{job.title}: SLURM takes no more jobs now ({refusal}); asks again later")
            self.pause_until = time.monotonic() + RETRY_SECONDS
            return
        self.slots[job.pool].pop(0)
        self.waiting.remove(job)
        self.running[job] = slot
        self._show(job, "pending" if self._executor(job).keeps_jobs else "running")


def _reason(job: Job) -> str:
    about = job.about()
    if not about:
        return f"{job.title} failed: it did not begin; see {job.directory / 'submitit'}."
    if "exit" not in about:
        return f"{job.title} failed: it was ended from outside (killed, cancelled, or out of memory); see {job.log}."
    said = last_words(job.log, STARTED) if job.log.is_file() else "it wrote no log"
    # The pipeline has named the log that says more.
    whole = "" if "the whole log is" in said else f"; the whole log is {job.log}"
    return f"{job.title} failed: {said}{whole}."
