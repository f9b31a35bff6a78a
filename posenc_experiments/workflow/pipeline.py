"""The order of the stages."""

from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from posenc_experiments.data import download, prepare
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.evaluation.compare import compare
from posenc_experiments.evaluation.score import score
from posenc_experiments.evaluation.translate import translate
from posenc_experiments.training.average import average
from posenc_experiments.training.nodes import forget_attempts, join
from posenc_experiments.training.train import train
from posenc_experiments.workflow.check_flags import check_flags
from posenc_experiments.workflow.check_settings import check_data
from posenc_experiments.workflow.experiment import Experiment, make_experiments
from posenc_experiments.workflow.run import Run, Stopped


def run_stages(run: Run, stages: list[str], names: list[str], seeds: list[int]) -> None:
    """Runs the stages asked for: those on data once, the others experiment by experiment. Nodes but the first only
    take part in trainings.
    """
    experiments = make_experiments(run, names, seeds)
    if run.node_rank and not run.dry_run:
        for number, experiment in enumerate(experiments if "train" in stages else [], 1):
            join(experiment, f"{number} of {len(experiments)}")
        return
    _say_missing_tests(run)
    checked = []
    if not run.dry_run:
        if run.nodes > 1 and "train" in stages:
            forget_attempts(experiments)
        checked = check_flags(run, experiments, stages)
    if "download" in stages:
        download.download(run)
    if "prepare" in stages:
        prepare.prepare(run)
    check_data(checked)
    _run_experiments(run, experiments, stages)
    if "compare" in stages:
        compare(run, experiments)


def _say_missing_tests(run: Run) -> None:
    """One line if this pair lacks some of the recipe's test sets."""
    corpus, tests = run.recipe.corpus, pair_tests(run)
    if missing := [test for test in corpus.tests if test not in tests]:
        run.say(f"{run.pair} has no {', '.join(missing)} ({corpus.sources}); its test sets are {', '.join(tests)}")


def _run_experiments(run: Run, experiments: list[Experiment], stages: list[str]) -> None:
    """Runs `run.jobs` experiments at a time; the first that fails ends the others (which can be resumed)."""
    columns = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=10),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    ]
    shown = run.console.is_terminal and not run.dry_run
    with Progress(*columns, console=run.console, transient=True, disable=not shown) as progress:
        run.progress = progress if shown else None
        with ThreadPoolExecutor(1 if run.dry_run else run.jobs) as pool:
            futures = [
                pool.submit(_run_experiment, experiment, stages, f"{number} of {len(experiments)}")
                for number, experiment in enumerate(experiments, 1)
            ]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:  # after a failure or Ctrl-C; a no-op when all is done
                run.stop.set()
                pool.shutdown(cancel_futures=True)
        run.progress = None
    errors = [error for future in futures if not future.cancelled() and (error := future.exception()) is not None]
    for error in errors:
        if not isinstance(error, Stopped):
            raise error


def _run_experiment(experiment: Experiment, stages: list[str], which: str) -> None:
    if "train" in stages:
        train(experiment, which)
    for name, stage in (("average", average), ("translate", translate), ("score", score)):
        if name in stages:
            stage(experiment)
