"""Runs a plan: first the jobs of the data, then those of the experiments."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import click

from posenc_experiments.base.errors import RecipeError, sentence
from posenc_experiments.base.markers import locked
from posenc_experiments.base.run import Run
from posenc_experiments.data.prepared import prepared_dir
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.experiment.check_flags import check_data, check_flags
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.jobs.job import Job
from posenc_experiments.jobs.pool import run_jobs
from posenc_experiments.jobs.progress import Progress
from posenc_experiments.jobs.slurm import Slurm, slurm_parameters
from posenc_experiments.training.nodes import forget_attempts, join
from posenc_experiments.workflow.plan import Plan

GRACE_SECONDS = 20  # time for an interrupted call to clean up before it is killed


def run_plan(plan: Plan) -> dict[Job, str]:
    """Runs the jobs that are not done; returns those that failed, and why. Nodes other than 0 only join trainings."""
    run = plan.experiments[0].run
    if run.dry_run:
        _check_flags(plan)
        _say_missing_tests(plan)
        _dry_run(plan)
        return {}
    if run.hardware.node_rank:
        for number, experiment in enumerate(plan.experiments if "train" in plan.stages else [], 1):
            join(experiment, f"{number} of {len(plan.experiments)}")
        return {}
    _say_missing_tests(plan)
    if run.hardware.nodes > 1 and "train" in plan.stages:
        forget_attempts(plan.experiments)
    try:
        with _interruptible(run.session.stop):
            _check_flags(plan)
            for directory in (run.data_dir, run.output_dir):
                directory.mkdir(parents=True, exist_ok=True)
            return _run_jobs(run, plan.to_do)
    except Interrupted as interrupted:
        run.say(
            "Interrupted: run again to resume."
            if run.hardware.slurm is None
            else "Interrupted: its jobs stay in SLURM's queue; run again to follow them, or end them by scancel."
        )
        sys.exit(128 + interrupted.number)


def finish(failures: dict[Job, str]) -> None:
    """Raises a RecipeError if jobs failed; prints the reasons of all but the last, which it raises."""
    reasons = list(failures.values())
    for reason in reasons[:-1]:
        click.echo(f"Error: {reason}", err=True)
    if reasons:
        raise RecipeError(reasons[-1])


def _run_jobs(run: Run, jobs: list[Job]) -> dict[Job, str]:
    hardware = run.hardware
    others, failures = [job for job in jobs if not job.here], dict[Job, str]()
    for job in jobs:
        if job.here and not any(need in failures for need in job.needs):
            try:
                job.work("", None)
            except Exception as error:
                reason = sentence(error)
                if reason is None:
                    raise
                failures[job] = reason
    with ExitStack() as stack:
        progress = Progress(run.session.console, others, elsewhere=hardware.slurm is not None)

        def show(job: Job, text: str) -> None:
            progress.set(job, "running", text)

        if hardware.slurm is not None and others:
            start = Slurm(hardware.slurm, show, run.session.stop).run
            stack.enter_context(locked(run.jobs_dir))  # two calls at a time would both submit the same jobs
        else:

            def start(job: Job, slot: str) -> None:
                job.work(slot, partial(show, job) if run.session.console.is_terminal else None)

        stack.enter_context(progress)
        slots = hardware.slots or [str(number) for number in range(len(others))]
        return run_jobs(others, slots, start, progress, run.session.stop, failures, together=run.hardware.nodes > 1)


class Interrupted(KeyboardInterrupt):
    """A signal interrupted the call; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _interruptible(stop: threading.Event) -> Iterator[None]:
    """Ends the block by Interrupted on SIGINT and SIGTERM.

    An import or a destructor may swallow the exception or raise another, so the signals also set `stop`, which ends all
    commands.
    """
    interrupted: list[Interrupted] = []

    def interrupt(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        signal.alarm(GRACE_SECONDS)  # then kills this process, and so its commands, if it has not ended
        interrupted.append(Interrupted(number))
        stop.set()
        raise interrupted[0]

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
        raise interrupted[0]


def _say_missing_tests(plan: Plan) -> None:
    """Prints a line for each pair that lacks some of the recipe's test sets."""
    for run in {one.run.pair: one.run for one in plan.experiments}.values():
        corpus, tests = run.recipe.corpus, pair_tests(run)
        if missing := [test for test in corpus.tests if test not in tests]:
            run.say(f"{run.pair} has no {', '.join(missing)} ({corpus.sources}); its test sets are {', '.join(tests)}")


def _check_flags(plan: Plan) -> None:
    """Checks the flags of experiments that are not done, before hours are spent on the data."""
    groups: dict[int, list[Experiment]] = {}  # experiments of one Run, by its id
    for experiment in plan.experiments:
        job = plan.experiment_jobs.get(experiment.directory)
        if job is not None and not job.is_done():
            groups.setdefault(id(experiment.run), []).append(experiment)
    for group in groups.values():
        checked = check_flags(group, plan.stages)
        if "prepare" in plan.stages:
            plan.checks.setdefault(prepared_dir(group[0].run), []).extend(checked)
        else:
            check_data(checked)


def _dry_run(plan: Plan) -> None:
    """Prints every command that would be run, and where it would run."""
    run = plan.experiments[0].run
    hardware = run.hardware
    for job in [*plan.data, *plan.experiment_jobs.values()]:
        if hardware.slurm is None or job.here:
            with_gpus = (
                f": with CUDA_VISIBLE_DEVICES={' or '.join(hardware.slots)}" if hardware.jobs > 1 and job.gpus else ""
            )
            run.say(f"# {job.title}{with_gpus}")
            job.work("", None)
        else:
            found = {
                name.removeprefix("slurm_"): value for name, value in slurm_parameters(job, hardware.slurm).items()
            }
            place = ", ".join(f"{name}={value}" for name, value in sorted(found.items()))
            run.say(f"# {job.title}: as a SLURM job with {place}")
            run.dry(job.command)
