"""Plans the jobs for experiments: one for each experiment, and those for the data of each pair."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from posenc_experiments.base.flags import flag_words
from posenc_experiments.base.run import Run
from posenc_experiments.data import download, prepare
from posenc_experiments.data.prepared import is_prepared, prepared_dir
from posenc_experiments.evaluation.score import ScoreStage
from posenc_experiments.evaluation.translate import TranslateStage
from posenc_experiments.experiment.check_flags import Checked, check_data
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.step import Step
from posenc_experiments.jobs.job import Job, Show
from posenc_experiments.training.average import AverageStage
from posenc_experiments.training.train import TrainStage
from posenc_experiments.workflow.sweep import as_option


def stages_of(which: str = "1 of 1") -> list[Step]:
    """The stages of an experiment, in order; `which` is its number for messages, such as "2 of 7"."""
    return [TrainStage(which), AverageStage(), TranslateStage(), ScoreStage()]


@dataclass(frozen=True)
class Plan:
    """Experiments, the stages to run, and the jobs that run them."""

    experiments: list[Experiment]
    stages: list[str]
    data: list[Job]
    experiment_jobs: dict[Path, Job]  # by the experiment's directory
    #: commands to check as soon as the data is prepared, by the directory of the data
    checks: dict[Path, list[Checked]]

    @property
    def to_do(self) -> list[Job]:
        """The jobs to run, each behind those that it needs.

        If all experiments are done, the jobs of the data are left out, so that downloaded data may be deleted.
        """
        waiting = not self.experiment_jobs or not all(job.is_done() for job in self.experiment_jobs.values())
        return sorted([*(self.data if waiting else []), *self.experiment_jobs.values()], key=_depth)


def _depth(job: Job) -> int:
    """The number of jobs in a row that must be done before."""
    return max((1 + _depth(need) for need in job.needs), default=0)


def make_plan(experiments: Iterable[Experiment], stages: list[str]) -> Plan:
    """Plans the jobs of these experiments, in order."""
    kept = {experiment.directory: experiment for experiment in experiments}
    runs = {prepared_dir(experiment.run): experiment.run for experiment in kept.values()}
    checks: dict[Path, list[Checked]] = {}
    data = {directory: _data_jobs(run, stages, checks) for directory, run in runs.items()}
    trainings = {
        directory: _training_job(experiment, stages, f"{number} of {len(kept)}", data[prepared_dir(experiment.run)][:])
        for number, (directory, experiment) in enumerate(kept.items(), 1)
        if any(stage.name in stages for stage in stages_of())
    }
    for directory, experiment in kept.items():
        if experiment.start is not None and experiment.start.directory in trainings:
            trainings[directory].needs.append(trainings[experiment.start.directory])
    return Plan(list(kept.values()), stages, [job for jobs in data.values() for job in jobs], trainings, checks)


def _command(run: Run, stages: Iterable[str], cpus: int, *options: str) -> list[str]:
    words = [*run.module("posenc_experiments"), "run", "--conf", str(run.recipe.path.absolute()), "--pair", run.pair]
    words += [word for override in run.overrides for word in ("--set", override)]
    words += ["--data-dir", str(run.data_dir), "--output-dir", str(run.output_dir)]
    return [*words, "--stages", ",".join(stages), "--cpus", str(cpus), *options]


def _data_jobs(run: Run, stages: list[str], checks: dict[Path, list[Checked]]) -> list[Job]:
    """The jobs for `download` and `prepare`; the stages themselves skip what is done."""

    def fetch(slot: str, show: Show | None) -> None:
        # Archives may have been deleted after the preparation.
        made = "train" in stages and run.recipe.corpus.sources is not None and is_prepared(run)
        if run.dry_run or not made:
            download.download(run)

    def prepare_and_check(slot: str, show: Show | None) -> None:
        prepare.prepare(run)
        check_data(checks.get(prepared_dir(run), []))

    jobs: list[Job] = []
    if "download" in stages:
        downloading = Job(
            title=f"download {run.pair}",
            work=fetch,
            command=_command(run, ["download"], run.hardware.cpus, "--gpus", "0"),
            is_done=lambda: False,
            directory=run.jobs_dir / run.pair / "download",
            here=True,  # other machines may have no network
        )
        jobs.append(downloading)
    if "prepare" in stages:
        preparing = Job(
            title=f"prepare {run.pair}",
            work=prepare_and_check,
            command=_command(run, ["prepare"], run.hardware.cpus, "--gpus", "0"),
            is_done=lambda: is_prepared(run),
            directory=run.jobs_dir / run.pair / "prepare",
            cpus=run.hardware.cpus,
            here=run.hardware.slurm is None,
            needs=jobs[:],
        )
        jobs.append(preparing)
    return jobs


def _training_job(experiment: Experiment, wanted: list[str], which: str, needs: list[Job]) -> Job:
    run, stages = experiment.run, [stage for stage in stages_of(which) if stage.name in wanted]

    def work(slot: str, show: Show | None) -> None:
        devices = slot if run.hardware.gpus and run.hardware.jobs > 1 else None
        placed = replace(experiment, run=replace(run, session=replace(run.session, devices=devices, show=show)))
        for stage in stages:
            stage.run(placed)

    words = [
        "--experiments",
        as_option(run.recipe, experiment.name),
        "--seeds",
        str(experiment.seed),
        "--gpus",
        str(run.hardware.gpus),
    ]
    words += ["--gpus-per-job", str(run.hardware.gpus)] if run.hardware.gpus else []
    words += ["--processes", str(run.hardware.cpu_processes)] if run.hardware.cpu_processes > 1 else []
    words += ["--precision", run.precision] if run.precision else []
    words += ["--tensorboard"] if run.tensorboard else []
    words += ["--wandb", run.wandb] if run.wandb else []
    extra = ["--", *flag_words(run.extra)] if run.extra else []
    return Job(
        title=f"{run.pair} {run.recipe.path.stem} {experiment.name} seed {experiment.seed}",
        work=work,
        command=_command(run, [stage.name for stage in stages], run.hardware.cpus, *words, *extra),
        is_done=lambda: stages[-1].is_done(experiment),
        directory=run.jobs_dir / experiment.directory.relative_to(run.results_dir),
        gpus=run.hardware.gpus,
        cpus=run.hardware.cpus,
        needs=needs,
    )
