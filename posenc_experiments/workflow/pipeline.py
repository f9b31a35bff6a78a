"""Runs a plan: first the jobs of the data, then those of the experiments."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import require_writable
from posenc_experiments.base.run import Run
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.experiment.check_flags import check_flags
from posenc_experiments.jobs.job import Job, Scheduler
from posenc_experiments.jobs.pool import run_jobs
from posenc_experiments.jobs.slurm import Slurm
from posenc_experiments.training.nodes import join
from posenc_experiments.training.train import require_gpu_of_precision, require_same_batch
from posenc_experiments.workflow.plan import Plan

GRACE_SECONDS = 20  # time for an interrupted call to clean up before it is killed


def run_plan(plan: Plan) -> dict[Job, str]:
    """Runs the jobs that are not done; returns those that failed, and why. Nodes other than 0 only join trainings."""
    run = plan.experiments[0].run
    local, hardware = Scheduler(run), run.hardware
    scheduler = local if hardware.slurm is None else Slurm(run)
    trained = plan.experiments if "train" in plan.experiment_stages else []
    if hardware.node_rank and not run.dry_run:
        for experiment in trained:
            join(plan.experiment_stages["train"], experiment)
        return {}
    _say_missing_tests(plan)
    with _interruptible(run, scheduler):
        for experiment in trained:
            require_same_batch(experiment)
        for experiment in plan.waiting if trained and not run.dry_run else []:
            require_gpu_of_precision(experiment)
        check_flags(plan.waiting, plan.experiment_stages.values())
        if run.dry_run:
            for job in [*plan.data, *plan.experiment_jobs.values()]:
                (local if job.here else scheduler).dry_run(job)
            return {}
        for experiment in trained if hardware.nodes > 1 else []:
            experiment.nodes.unlink(missing_ok=True)  # a killed run announced it
        for directory in (run.data_dir, run.output_dir):
            require_writable(directory)
        return run_jobs(plan.to_do, scheduler)


def finish(failures: dict[Job, str]) -> None:
    """RecipeError with the reasons of all jobs that failed, if any did."""
    if failures:
        raise RecipeError("\nError: ".join(failures.values()))


@contextmanager
def _interruptible(run: Run, scheduler: Scheduler) -> Iterator[None]:
    """Ends the block and the process on SIGINT and SIGTERM.

    An import or a destructor may swallow the exception or raise another, so the signals also set the session's `stop`,
    which ends all commands.
    """
    interrupted: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        signal.alarm(GRACE_SECONDS)  # then kills this process, and so its commands, if it has not ended
        interrupted.append(number)
        run.session.stop.set()
        raise KeyboardInterrupt

    handled = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # shells make background jobs ignore it
        handled.append(signal.SIGINT)
    previous = {number: signal.signal(number, interrupt) for number in handled}
    try:
        yield
    except BaseException:
        if not interrupted:
            raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if interrupted:
        run.say(f"Interrupted: {scheduler.interrupted}")
        sys.exit(128 + interrupted[0])


def _say_missing_tests(plan: Plan) -> None:
    """Prints a line for each pair that lacks some of the recipe's test sets."""
    for run in {one.run.pair: one.run for one in plan.experiments}.values():
        corpus, tests = run.recipe.corpus, pair_tests(run)
        if missing := [test for test in corpus.tests if test not in tests]:
            run.say(f"{run.pair} has no {', '.join(missing)} ({corpus.sources}); its test sets are {', '.join(tests)}")
