"""The command line of every recipe's table.sh: `python -m recipes.common.table --recipe recipes/<corpus> NAME`."""

import os
import shlex
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from posenc_experiments.cli import HELP_OPTIONS
from posenc_experiments.commands.run import check_hardware, choose_seeds, count_gpus, require_gpus
from posenc_experiments.errors import RecipeError
from posenc_experiments.jobs.executors import Executor, Local, Slurm, parse_slurm, slurm_parameters
from posenc_experiments.jobs.job import Job
from posenc_experiments.jobs.progress import Progress
from posenc_experiments.jobs.runner import Runner
from posenc_experiments.workflow.check_flags import check_flags
from posenc_experiments.workflow.check_settings import check_data
from posenc_experiments.workflow.experiment import Experiment
from posenc_experiments.workflow.plan import DATA, TRAIN, Options, Plan, make_plan
from posenc_experiments.workflow.rows import read_table
from posenc_experiments.workflow.run import ROOT
from posenc_experiments.workflow.settings import parse_flags
from posenc_experiments.workflow.stages import locked

SLURM_CPUS = 8


@click.command(context_settings=HELP_OPTIONS)
@click.option("--recipe", "folder", type=click.Path(path_type=Path), required=True, help="Set by table.sh.")
@click.argument("name", required=False)
@click.option("--seeds", default="1", show_default=True, help="Each setting is trained once a seed, such as 1,2,3.")
@click.option("--executor", "where", type=click.Choice(["local", "slurm"]), default="local", show_default=True)
@click.option(
    "--gpus", type=click.IntRange(min=0), help="GPUs of this machine to share, 0 for the CPU; all if left out."
)
@click.option("--gpus-per-job", type=click.IntRange(min=1), default=1, show_default=True, help="GPUs of one training.")
@click.option(
    "--cpus",
    type=click.IntRange(min=1),
    help=f"CPU threads of this machine to share, all if left out; with slurm those of a job, {SLURM_CPUS} if left out.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=0),
    help="Trainings at a time. On the CPU they share --cpus: 1 if left out, 0: one for each CPU. With slurm as many as "
    "wait or run in its queue, all if left out.",
)
@click.option(
    "--slurm", "slurm_words", multiple=True, metavar="KEY=VALUE", help="partition=gpu, time=1440 (minutes)..."
)
@click.option("--source", type=click.Path(path_type=Path), help="Take the corpus's files from this directory.")
@click.option("--data-dir", type=click.Path(path_type=Path), default=ROOT / "data", help="[default: data]")
@click.option("--output-dir", type=click.Path(path_type=Path), default=ROOT / "output", help="[default: output]")
@click.option("--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE", help="Changes a value of every .conf.")
@click.option("--processes", type=click.IntRange(min=1), help="Training processes of a job on a CPU.")
@click.option("--precision", type=click.Choice(["fp32", "fp16", "bf16"]), help="In training.  [default: the .conf's]")
@click.option("--tensorboard", is_flag=True, help="Writes event files into each experiment's directory.")
@click.option("--wandb", metavar="PROJECT", help="Reports to this project of Weights & Biases.")
@click.option("--show", is_flag=True, help="Only print the table of what is there.")
@click.option("--dry-run", is_flag=True, help="Print every command that would be run; run and write nothing.")
@click.argument("extra", nargs=-1, metavar="[-- FAIRSEQ-TRAIN FLAGS]")
def main(folder: Path, name: str | None, extra: tuple[str, ...], **options: Any) -> None:
    """Trains, translates and scores what is missing of a paper's table, and prints it beside the paper's figures.

    NAME is a file of the recipe's tables/, without .tsv. A call that was killed is simply made again: what is done is
    passed over, what still runs is waited for, what was cut short goes on.
    """
    table = read_table(folder, name)
    if options["source"] is not None and not options["source"].is_dir():
        raise RecipeError(f"--source {options['source']}: there is no such directory.")
    slots, hardware = share_hardware(
        **{key: options[key] for key in ("where", "gpus", "gpus_per_job", "cpus", "jobs", "dry_run")}
    )
    check_hardware(hardware["gpus"], options["processes"], 1, 0, "", options["precision"], options["wandb"])
    wanted = Options(
        folder=folder.absolute(),
        seeds=choose_seeds(options["seeds"]),
        data_dir=options["data_dir"].absolute(),
        output_dir=options["output_dir"].absolute(),
        source=options["source"].absolute() if options["source"] else None,
        overrides=options["overrides"],
        forwarded=_forwarded(options),
        extra=parse_flags(list(extra), "the flags behind --"),
        **hardware,
    )
    plan = make_plan(table, wanted)
    parameters = parse_slurm(options["slurm_words"])
    if parameters and options["where"] != "slurm":
        raise RecipeError("--slurm needs --executor slurm: add it, or leave --slurm out.")
    slots[TRAIN] = slots[TRAIN] or [str(number) for number in range(len(plan.jobs))]
    if options["dry_run"]:
        dry_run(plan, slots[TRAIN], parameters if options["where"] == "slurm" else None)
        return
    failures = {} if options["show"] else run_table(plan, slots, options["where"], parameters)
    report(plan, failures)
    if failures:
        sys.exit(1)


def _forwarded(options: dict[str, Any]) -> tuple[str, ...]:
    words = [*(["--tensorboard"] if options["tensorboard"] else [])]
    for name in ("processes", "precision", "wandb"):
        words += [f"--{name}", str(options[name])] if options[name] is not None else []
    return tuple(words)


def share_hardware(
    where: str, gpus: int | None, gpus_per_job: int, cpus: int | None, jobs: int | None, dry_run: bool = False
) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Slots by pool (of trainings none: as many as there are jobs) and the hardware of one job, as Options takes it."""
    if where == "slurm":
        share = cpus or SLURM_CPUS
        slots = [str(number) for number in range(jobs or 0)]
        return {DATA: ["0"], TRAIN: slots}, {
            "gpus": 0 if gpus == 0 else gpus_per_job,
            "cpus": share,
            "data_cpus": share,
        }
    cpus = cpus or len(os.sched_getaffinity(0))
    # A dry run may be about another machine.
    names = [str(number) for number in range(gpus)] if dry_run and gpus is not None else visible_gpus(gpus)
    if names:
        if gpus_per_job > len(names):
            raise RecipeError(f"--gpus-per-job {gpus_per_job}: there are {len(names)} GPUs to share; ask for fewer.")
        count = len(names) // gpus_per_job
        slots = [",".join(names[gpus_per_job * slot : gpus_per_job * (slot + 1)]) for slot in range(count)]
        slots = slots[: jobs or count]
    else:
        slots = [str(number) for number in range(min(1 if jobs is None else jobs or cpus, cpus))]
    hardware = {"gpus": gpus_per_job if names else 0, "cpus": max(1, cpus // len(slots)), "data_cpus": cpus}
    return {DATA: ["0"], TRAIN: slots}, hardware


def visible_gpus(wanted: int | None) -> list[str]:
    """What CUDA_VISIBLE_DEVICES may name; `wanted` of them, or all."""
    if wanted == 0:
        return []
    found = count_gpus()
    require_gpus(wanted or 0, found)
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    names = named[:found] if len(named) >= found else [str(number) for number in range(found)]
    return names[: found if wanted is None else wanted]


def dry_run(plan: Plan, slots: list[str], slurm: dict[str, Any] | None) -> None:
    """Prints every command, each with where it would run."""
    for job in plan.jobs:
        click.echo(f"# {job.title}: {_place(job, slots, slurm)}")
        click.echo(shlex.join(job.command))


def _place(job: Job, slots: list[str], slurm: dict[str, Any] | None) -> str:
    if job.pool == DATA and (job.here or slurm is None):
        return "on this machine"
    if slurm is not None:
        found = {name.removeprefix("slurm_"): value for name, value in slurm_parameters(job, slurm).items()}
        return "as a SLURM job with " + ", ".join(f"{name}={value}" for name, value in sorted(found.items()))
    if job.gpus:
        return "with CUDA_VISIBLE_DEVICES=" + " or ".join(slots)
    return f"at most {len(slots)} at a time"


def run_table(plan: Plan, slots: dict[str, list[str]], where: str, parameters: dict[str, Any]) -> dict[Job, str]:
    """Runs what is missing; why jobs failed."""
    executor: Executor = Slurm(parameters) if where == "slurm" else Local()
    _check_flags(plan)
    console = Console()
    signal.signal(signal.SIGTERM, _interrupt)
    with ExitStack() as stack:
        # Of two runners on one machine, each would take the same GPUs.
        stack.enter_context(locked(plan.corpus_dir / "jobs" / (plan.table.name if executor.keeps_jobs else "")))
        progress = stack.enter_context(Progress(console, plan.jobs))
        try:
            return Runner(executor, slots, progress).run(plan.jobs)
        except KeyboardInterrupt:
            progress.say(
                "Interrupted: its jobs stay in SLURM's queue; run again to follow them, or end them by scancel."
                if executor.keeps_jobs
                else "Interrupted: run again to go on."
            )
            sys.exit(130)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _check_flags(plan: Plan) -> None:
    """Has fairseq read the flags of what is missing, before the data takes hours."""
    missing: dict[tuple[Path, str], list[Experiment]] = {}
    for planned in plan.rows:
        for experiment in planned.experiments:
            if not plan.job_of[experiment.directory].is_done():
                missing.setdefault((experiment.run.recipe.path, experiment.run.pair), []).append(experiment)
    for experiments in missing.values():
        check_data(check_flags(experiments[0].run, experiments, ["train", "translate"]))


def report(plan: Plan, failures: dict[Job, str]) -> None:
    """Prints the table and, in one sentence each, what failed."""
    from posenc_experiments.evaluation.table import as_text, make_lines, write_report

    failed = [directory for directory, job in plan.job_of.items() if job in failures]
    lines = make_lines(plan, failed)
    files = write_report(plan, lines)
    click.echo("\n" + as_text(plan.table.title, lines))
    click.echo(f"Written: {' and '.join(map(str, files))}")
    for reason in failures.values():
        click.echo(f"error: {reason}", err=True)
