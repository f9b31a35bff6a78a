"""Plans the jobs for experiments: one for each experiment, and those for the data of each pair."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from posenc_experiments.base.hardware import find_gpus
from posenc_experiments.base.run import Run
from posenc_experiments.data import download, prepare
from posenc_experiments.data.prepared import is_prepared, prepared_dir
from posenc_experiments.evaluation.scores.score import ScoreStage
from posenc_experiments.experiment.check_flags import check_flags
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.stage import Stage
from posenc_experiments.jobs.job import Job

#: the stages of an experiment by their names, in order
EXPERIMENT_STAGES = {stage.name: stage for stage in ScoreStage().chain}
STAGES = ("download", "prepare", *EXPERIMENT_STAGES, "compare")


@dataclass(frozen=True)
class Plan:
    """Experiments, the stages to run by their names, and the jobs that run them."""

    experiments: list[Experiment]
    experiment_stages: dict[str, Stage]
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
    experiment_stages = {name: stage for name, stage in EXPERIMENT_STAGES.items() if name in stages}
    data = {directory: _data_jobs(group, stages, experiment_stages) for directory, group in groups.items()}
    experiment_jobs = {
        directory: _experiment_job(experiment, list(experiment_stages.values()), data[prepared_dir(experiment.run)])
        for directory, experiment in kept.items()
        if experiment_stages
    }
    for directory, experiment in kept.items():
        if experiment.start is not None and experiment.start.directory in experiment_jobs:
            experiment_jobs[directory].needs.append(experiment_jobs[experiment.start.directory])
    data_jobs = [job for jobs in data.values() for job in jobs]
    return Plan(list(kept.values()), experiment_stages, data_jobs, experiment_jobs)


def _data_jobs(experiments: list[Experiment], stages: list[str], experiment_stages: dict[str, Stage]) -> list[Job]:
    """The jobs for `download` and `prepare`; the stages themselves skip what is done."""
    run = experiments[0].run
    fetch = Job(
        title=f"download {run.pair}",
        work=partial(_download, run, "train" in experiment_stages),
        is_done=lambda: False,
        directory=run.jobs_dir / run.pair / "download",
        here=True,  # other machines may have no network
    )
    make = Job(
        title=f"prepare {run.pair}",
        work=partial(_prepare, experiments, list(experiment_stages.values())),
        is_done=lambda: is_prepared(run),
        directory=run.jobs_dir / run.pair / "prepare",
        here=run.hardware.slurm is None,
        needs=[fetch] if "download" in stages else [],
    )
    return [job for stage, job in (("download", fetch), ("prepare", make)) if stage in stages]


def _experiment_job(experiment: Experiment, experiment_stages: list[Stage], needs: list[Job]) -> Job:
    run = experiment.run
    return Job(
        title=f"{run.pair} {run.recipe.path.stem} {experiment.name} seed {experiment.seed}",
        work=partial(_run_stages, experiment, experiment_stages),
        is_done=lambda: experiment_stages[-1].is_done(experiment),
        directory=run.jobs_dir / experiment.directory.relative_to(run.results_dir),
        gpus=run.hardware.gpus,
        needs=needs[:],
    )


def _download(run: Run, trains: bool, slot: str) -> None:
    # Archives may have been deleted after the preparation.
    made = trains and run.recipe.corpus.sources is not None and is_prepared(run)
    if run.dry_run or not made:
        download.download(run)


def _prepare(experiments: list[Experiment], experiment_stages: list[Stage], slot: str) -> None:
    run = experiments[0].run
    checked = is_prepared(run) or run.dry_run
    prepare.prepare(run)
    if not checked:
        check_flags(experiments, experiment_stages)


def _run_stages(experiment: Experiment, experiment_stages: list[Stage], slot: str) -> None:
    run, hardware = experiment.run, experiment.run.hardware
    if hardware.slurm is not None and not run.dry_run:  # no other machine has looked for this one's GPUs
        find_gpus(hardware.gpus)
    devices = slot if hardware.gpus and hardware.jobs > 1 else None
    placed = replace(experiment, run=replace(run, session=replace(run.session, devices=devices)))
    for stage in experiment_stages:
        stage.run(placed)
