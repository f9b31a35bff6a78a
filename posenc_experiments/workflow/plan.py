"""Plans the jobs for experiments: one for each experiment, and those for the data of each pair."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from posenc_experiments.base.flags import flag_words
from posenc_experiments.base.run import Run
from posenc_experiments.data import download, prepare
from posenc_experiments.data.prepared import is_prepared, prepared_dir
from posenc_experiments.evaluation.scores.score import ScoreStage
from posenc_experiments.evaluation.scores.translate import TranslateStage
from posenc_experiments.experiment.check_flags import check_flags
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.step import Step
from posenc_experiments.jobs.job import Job
from posenc_experiments.training.average import AverageStage
from posenc_experiments.training.train import TrainStage
from posenc_experiments.workflow.sweep import as_option

#: the stages of an experiment, in order
STEPS: tuple[Step, ...] = (TrainStage(), AverageStage(), TranslateStage(), ScoreStage())


@dataclass(frozen=True)
class Plan:
    """Experiments, the stages to run, and the jobs that run them."""

    experiments: list[Experiment]
    stages: list[str]
    data: list[Job]
    experiment_jobs: dict[Path, Job]  # by the experiment's directory

    @property
    def waiting(self) -> list[Experiment]:
        """The experiments whose jobs are not done."""
        jobs = self.experiment_jobs
        return [one for one in self.experiments if one.directory in jobs and not jobs[one.directory].is_done()]

    @property
    def to_do(self) -> list[Job]:
        """The jobs to run, each behind those that it needs.

        If all experiments are done, the jobs of the data are left out, so that downloaded data may be deleted.
        """
        data = self.data if self.waiting or not self.experiment_jobs else []
        return sorted([*data, *self.experiment_jobs.values()], key=_depth)


def _depth(job: Job) -> int:
    """The number of jobs in a row that must be done before."""
    return max((1 + _depth(need) for need in job.needs), default=0)


def make_plan(experiments: Iterable[Experiment], stages: list[str]) -> Plan:
    """Plans the jobs of these experiments, in order."""
    kept = {experiment.directory: experiment for experiment in experiments}
    groups: dict[Path, list[Experiment]] = {}  # by their data
    for experiment in kept.values():
        groups.setdefault(prepared_dir(experiment.run), []).append(experiment)
    data = {directory: _data_jobs(group, stages) for directory, group in groups.items()}
    steps = [step for step in STEPS if step.name in stages]
    trainings = {
        directory: _training_job(experiment, steps, data[prepared_dir(experiment.run)])
        for directory, experiment in kept.items()
        if steps
    }
    for directory, experiment in kept.items():
        if experiment.start is not None and experiment.start.directory in trainings:
            trainings[directory].needs.append(trainings[experiment.start.directory])
    return Plan(list(kept.values()), stages, [job for jobs in data.values() for job in jobs], trainings)


def _command(run: Run, stages: Iterable[str], *options: str) -> list[str]:
    words = [*run.module("posenc_experiments"), "run", "--conf", str(run.recipe.path.absolute()), "--pair", run.pair]
    words += [word for override in run.overrides for word in ("--set", override)]
    words += ["--data-dir", str(run.data_dir), "--output-dir", str(run.output_dir)]
    return [*words, "--stages", ",".join(stages), "--cpus", str(run.hardware.cpus), *options]


def _data_jobs(experiments: list[Experiment], stages: list[str]) -> list[Job]:
    """The jobs for `download` and `prepare`; the stages themselves skip what is done."""
    run = experiments[0].run

    def fetch(slot: str) -> None:
        # Archives may have been deleted after the preparation.
        made = "train" in stages and run.recipe.corpus.sources is not None and is_prepared(run)
        if run.dry_run or not made:
            download.download(run)

    def prepare_and_check(slot: str) -> None:
        checked = is_prepared(run) or run.dry_run
        prepare.prepare(run)
        if not checked:
            check_flags(experiments, stages)

    jobs = {
        "download": Job(
            title=f"download {run.pair}",
            work=fetch,
            command=[],
            is_done=lambda: False,
            directory=run.jobs_dir / run.pair / "download",
            here=True,  # other machines may have no network
        ),
        "prepare": Job(
            title=f"prepare {run.pair}",
            work=prepare_and_check,
            command=_command(run, ["prepare"], "--gpus", "0"),
            is_done=lambda: is_prepared(run),
            directory=run.jobs_dir / run.pair / "prepare",
            here=run.hardware.slurm is None,
        ),
    }
    chosen = [job for stage, job in jobs.items() if stage in stages]
    for before, job in pairwise(chosen):
        job.needs.append(before)
    return chosen


def _training_job(experiment: Experiment, steps: list[Step], needs: list[Job]) -> Job:
    run = experiment.run

    def work(slot: str) -> None:
        devices = slot if run.hardware.gpus and run.hardware.jobs > 1 else None
        placed = replace(experiment, run=replace(run, session=replace(run.session, devices=devices)))
        for step in steps:
            step.run(placed)

    words = ["--experiments", as_option(run.recipe, experiment.name), "--seeds", str(experiment.seed)]
    words += ["--gpus", str(run.hardware.gpus)]
    words += ["--gpus-per-job", str(run.hardware.gpus)] if run.hardware.gpus else []
    words += ["--processes", str(run.hardware.cpu_processes)] if run.hardware.cpu_processes > 1 else []
    words += ["--precision", run.precision] if run.precision else []
    words += ["--tensorboard"] if run.tensorboard else []
    words += ["--wandb", run.wandb] if run.wandb else []
    words += ["--", *flag_words(run.extra)] if run.extra else []
    return Job(
        title=f"{run.pair} {run.recipe.path.stem} {experiment.name} seed {experiment.seed}",
        work=work,
        command=_command(run, [step.name for step in steps], *words),
        is_done=lambda: steps[-1].is_done(experiment),
        directory=run.jobs_dir / experiment.directory.relative_to(run.results_dir),
        gpus=run.hardware.gpus,
        needs=needs[:],
    )
