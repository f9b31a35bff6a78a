"""From a table to its experiments and to the jobs that make them: each setting once, whatever rows name it."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from posenc_experiments.data import prepare
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.errors import RecipeError
from posenc_experiments.jobs.job import Job
from posenc_experiments.workflow.experiment import Experiment, require_same
from posenc_experiments.workflow.rows import Table, TableRow
from posenc_experiments.workflow.run import Run
from posenc_experiments.workflow.settings import Flags, flag_words, read_recipe

DATA, TRAIN = "data", "train"  # pools of slots: data is made one at a time


@dataclass(frozen=True)
class Options:
    """What one call asks for; `gpus` and `cpus` are those of one training, `data_cpus` of preparing the data."""

    folder: Path  # the recipe's
    seeds: list[int]
    data_dir: Path
    output_dir: Path
    gpus: int = 0
    cpus: int = 1
    data_cpus: int = 1
    source: Path | None = None
    overrides: tuple[str, ...] = ()
    forwarded: tuple[str, ...] = ()  # options of the pipeline that change no setting
    extra: Flags = field(default_factory=dict)


@dataclass(frozen=True)
class Planned:
    """A row with the experiments that it shows, one a seed."""

    row: TableRow
    experiments: list[Experiment]


@dataclass(frozen=True)
class Plan:
    """A table's rows, and every job that they need, those on data first."""

    table: Table
    rows: list[Planned]
    jobs: list[Job]
    job_of: dict[Path, Job]  # by the experiment's directory

    @property
    def corpus_dir(self) -> Path:
        run = self.rows[0].experiments[0].run
        return run.output_dir / run.recipe.corpus.name


def make_plan(table: Table, options: Options) -> Plan:
    """RecipeError if a row names what its .conf does not have."""
    runs: dict[tuple[str, str], Run] = {}
    rows = []
    for row in table.rows:
        if (row.conf, row.pair) not in runs:
            runs[row.conf, row.pair] = _make_run(row, options)
        run = runs[row.conf, row.pair]
        _check(row, run)
        rows.append(Planned(row, [Experiment(run, row.experiment, seed) for seed in options.seeds]))
    _check_data(runs)
    data: dict[str, list[Job]] = {}
    for run in runs.values():
        if run.pair not in data:
            data[run.pair] = _data_jobs(run, options)
    trainings: dict[Path, Job] = {}
    first: dict[Path, Experiment] = {}
    for planned in rows:
        for experiment in planned.experiments:
            require_same(first.setdefault(experiment.directory, experiment), experiment)
            if experiment.directory not in trainings:
                trainings[experiment.directory] = _training_job(experiment, options, data[planned.row.pair][-1:])
    return Plan(table, rows, [*(job for pair in data.values() for job in pair), *trainings.values()], trainings)


def _make_run(row: TableRow, options: Options) -> Run:
    path = options.folder / f"{row.conf}.conf"
    if not path.is_file():
        names = ", ".join(sorted(one.stem for one in options.folder.glob("*.conf")))
        raise RecipeError(f"{row.where}: {options.folder} has no {path.name}; it has {names}.")
    return Run(
        recipe=read_recipe(path, options.overrides),
        pair=row.pair,
        data_dir=options.data_dir,
        output_dir=options.output_dir,
        python=sys.executable,
        gpus=options.gpus,
        cpus=options.cpus,
        extra=options.extra,
    )


def _check(row: TableRow, run: Run) -> None:
    for kind, name, names in _named(row, run):
        if name not in names:
            raise RecipeError(f"{row.where}: {run.recipe.path.name} has no {kind} '{name}'; it has {', '.join(names)}.")


def _named(row: TableRow, run: Run) -> Iterator[tuple[str, str, list[str]]]:
    """What a row names, and the names that there are: of test sets, those of its pair."""
    yield "pair", row.pair, run.recipe.pairs
    yield "experiment", row.experiment, list(run.recipe.experiments)
    yield "test set", row.test, pair_tests(run)


def _check_data(runs: dict[tuple[str, str], Run]) -> None:
    """Two .conf files of one table share the prepared data of a pair."""
    first: dict[str, tuple[str, Run]] = {}
    for (conf, pair), run in runs.items():
        other, other_run = first.setdefault(pair, (conf, run))
        if prepare.inputs(run) != prepare.inputs(other_run):
            raise RecipeError(
                f"{conf}.conf and {other}.conf prepare {pair} differently: let both extend one file with [corpus] and "
                f"[prepare], or put them into different tables with different --data-dir."
            )


def _command(run: Run, options: Options, stages: str) -> list[str]:
    words = [run.python, "-m", "posenc_experiments", "run", "--conf", str(run.recipe.path), "--pair", run.pair]
    words += [word for override in options.overrides for word in ("--set", override)]
    return [*words, "--stages", stages, "--data-dir", str(run.data_dir), "--output-dir", str(run.output_dir)]


def _data_jobs(run: Run, options: Options) -> list[Job]:
    """Download, then prepare: what is there already is found by the pipeline itself."""
    jobs = run.output_dir / run.recipe.corpus.name / "jobs" / run.pair
    hardware = ["--gpus", "0", "--cpus", str(options.data_cpus)]
    source = ["--source", str(options.source)] if options.source else []
    download = Job(
        title=f"download {run.pair}",
        directory=jobs / "download",
        command=[*_command(run, options, "download"), *source, *hardware],
        is_done=lambda: download.about().get("exit") == 0,
        locks=[run.download_dir.parent],
        pool=DATA,
        cpus=options.data_cpus,
        here=True,
    )
    made = Job(
        title=f"prepare {run.pair}",
        directory=jobs / "prepare",
        command=[*_command(run, options, "prepare"), *hardware],
        is_done=lambda: prepare.is_prepared(run),
        locks=[run.pair_dir],
        pool=DATA,
        cpus=options.data_cpus,
        needs=[download],
    )
    return [download, made]


def _training_job(experiment: Experiment, options: Options, needs: list[Job]) -> Job:
    run = experiment.run
    corpus_dir = run.output_dir / run.recipe.corpus.name
    words = ["--experiments", experiment.name, "--seeds", str(experiment.seed)]
    words += ["--gpus", str(options.gpus), "--cpus", str(options.cpus), *options.forwarded]
    extra = ["--", *flag_words(options.extra)] if options.extra else []
    return Job(
        title=f"{run.pair} {run.recipe.path.stem} {experiment.name} seed {experiment.seed}",
        directory=corpus_dir / "jobs" / experiment.directory.relative_to(corpus_dir),
        command=[*_command(run, options, "train..score"), *words, *extra],
        is_done=lambda: experiment.markers.is_done("score", experiment.score_inputs()),
        locks=[experiment.directory],
        pool=TRAIN,
        gpus=options.gpus,
        cpus=options.cpus,
        needs=needs,
    )
