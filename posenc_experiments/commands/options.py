"""The options that `run`, `own` and `table` share, their checks, and the `Run` that they lead to."""

import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import require_directory
from posenc_experiments.base.flags import parse_flags
from posenc_experiments.base.hardware import Hardware, find_gpus
from posenc_experiments.base.read_recipe import words
from posenc_experiments.base.recipe import Recipe
from posenc_experiments.base.run import Run, Session
from posenc_experiments.commands.number_types import Count
from posenc_experiments.jobs.slurm import parse_slurm

SLURM_CPUS = 8
Command = TypeVar("Command", bound=Callable[..., Any])


OPTIONS = [
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="SECTION.KEY=VALUE",
        help="Change a value of the recipe, such as train.max-update=1000. May be repeated.",
    ),
    click.option("--seeds", default="1", help="Run each experiment with each seed, such as 1,2,3."),
    click.option(
        "--source",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="Take the corpus's archives (kftt also: text) from this directory instead of the network.",
    ),
    click.option("--data-dir", type=click.Path(), default="data", help="Directory of downloaded and prepared data."),
    click.option("--output-dir", type=click.Path(), default="output", help="Directory of the results."),
    click.option(
        "--executor",
        type=click.Choice(["local", "slurm"]),
        default="local",
        help="Where experiments run: on this machine, or as jobs in SLURM's queue.",
    ),
    click.option(
        "--gpus",
        type=Count(0),
        help="GPUs of this machine to use, 0 for the CPU; all if left out. With slurm: GPUs of one job, unless "
        "--gpus-per-job is given.",
    ),
    click.option(
        "--gpus-per-job",
        type=Count(),
        help="GPUs of one training; if fewer than --gpus, several trainings run at a time.  [default: run: as many as "
        "train.batch-tokens has max-tokens for, table: 1]",
    ),
    click.option(
        "--cpus",
        type=Count(),
        help=f"CPU threads or processes, all if left out. With slurm: those of one job, {SLURM_CPUS} if left out.",
    ),
    click.option(
        "--jobs",
        type=Count(0),
        help="Experiments at a time. On the CPU they share --cpus; 1 if left out, 0 for one per CPU. With slurm: jobs "
        "in the queue at a time, all if left out.",
    ),
    click.option(
        "--slurm",
        "slurm_words",
        multiple=True,
        metavar="KEY=VALUE",
        help="A parameter of SLURM's jobs, such as partition=gpu or time=1440 (minutes). May be repeated.",
    ),
    click.option("--processes", type=Count(), help="Training processes on a CPU; with GPUs there is one per GPU."),
    click.option(
        "--precision",
        type=click.Choice(["fp32", "fp16", "bf16"]),
        help="Precision of training.  [default: the recipe's]",
    ),
    click.option("--tensorboard", is_flag=True, help="Write event files into each experiment's directory."),
    click.option("--wandb", metavar="PROJECT", help="Report to this project of Weights & Biases."),
    click.option("--dry-run", is_flag=True, help="Print every command that would be run; run and write nothing."),
    click.argument("extra", nargs=-1, metavar="[-- FAIRSEQ-TRAIN FLAGS]"),
]


def shared_options(command: Command, first: Sequence[Any] = ()) -> Command:
    """Adds `first` and then OPTIONS to a command, which passes their values to `Call` as a dictionary."""
    for option in reversed([*first, *OPTIONS]):
        command = option(command)
    return command


class Call:
    """One call of `run` or `table`: the seeds, the hardware, and runs with its options.

    Args:
        options: values of `shared_options`, and of --nodes, --node-rank and --rendezvous where the command has them.
        most_gpus: GPUs of one training on this machine, unless --gpus-per-job says otherwise; None for all.

    Raises:
        RecipeError: options do not go together.
    """

    def __init__(self, options: dict[str, Any], most_gpus: int | None) -> None:
        self.options, self.session = options, Session()  # shared by all runs of the call
        self.seeds = choose_seeds(options["seeds"])
        self.hardware = find_hardware(options, most_gpus)
        if options["wandb"] and importlib.util.find_spec("wandb") is None:
            raise RecipeError(
                f"--wandb {options['wandb']}: the package wandb is not installed; run `pip install wandb` and log in."
            )

    def run(self, recipe: Recipe, pair: str) -> Run:
        """The `Run` of one recipe and pair with the options of this call."""
        options = self.options
        return Run(
            recipe=recipe,
            pair=pair,
            data_dir=_directory("--data-dir", options["data_dir"], ":,"),
            output_dir=_directory("--output-dir", options["output_dir"], ":"),
            source_dir=options["source"].absolute() if options["source"] else None,
            extra=parse_flags(list(options["extra"]), "the flags after --"),
            hardware=self.hardware,
            session=self.session,
            **{name: options[name] for name in ("precision", "tensorboard", "wandb", "dry_run")},
        )


def _directory(flag: str, text: str, separators: str) -> Path:
    """The absolute path; RecipeError if commands of fairseq cannot contain it, or it cannot be a directory."""
    if not text:  # a shell passes this for a variable that is not set
        raise RecipeError(f"{flag} is empty: name a directory.")
    path = Path(text).absolute()
    if signs := [sign for sign in separators if sign in str(path)]:
        raise RecipeError(f"{flag} {path}: fairseq would split this path at '{signs[0]}'; name another.")
    require_directory(path, flag)
    return path


def choose_seeds(text: str) -> list[int]:
    """The different numbers of `--seeds`, in their order."""
    seeds = words(text)
    if not seeds or not all(seed.isdecimal() and len(seed) <= 10 and int(seed) < 1 << 32 for seed in seeds):
        raise RecipeError(f"--seeds {text}: write whole numbers below {1 << 32}, such as 1,2,3.")
    return list(dict.fromkeys(map(int, seeds)))


def find_hardware(options: dict[str, Any], most_gpus: int | None = None) -> Hardware:
    """What the jobs of a call run on: this machine, nodes that train together, or SLURM's queue.

    Args:
        options: as for `Call`.
        most_gpus: as for `Call`.

    Raises:
        RecipeError: options do not go together, or ask for GPUs that are not there.
    """
    several = {name: options[name] for name in ("nodes", "node_rank", "rendezvous") if name in options}
    nodes, cpus, jobs, each = several.get("nodes", 1), options["cpus"], options["jobs"], options["gpus_per_job"]
    if options["executor"] == "slurm":
        if nodes > 1:
            raise RecipeError(
                "--nodes: jobs of --executor slurm have one node each; submit recipes/common/slurm.sbatch."
            )
        gpus, cpus = 0 if options["gpus"] == 0 else each or options["gpus"] or 1, cpus or SLURM_CPUS
        slots = [str(number) for number in range(jobs or 0)]
    elif options["slurm_words"]:
        raise RecipeError("--slurm needs --executor slurm: add it, or leave --slurm out.")
    else:
        cpus, names = cpus or len(os.sched_getaffinity(0)), find_gpus(options["gpus"], options["dry_run"])
        gpus = each or min(len(names), most_gpus or len(names))
        if gpus > len(names):
            raise RecipeError(f"--gpus-per-job {gpus}: there are {len(names)} GPUs to share; ask for fewer.")
        if gpus:
            slots = [",".join(names[first : first + gpus]) for first in range(0, len(names) - gpus + 1, gpus)]
            slots = slots[: jobs or None]
        else:
            slots = [str(number) for number in range(min(1 if jobs is None else jobs or cpus, cpus))]
        slots = slots if nodes == 1 else slots[:1]
    if several.get("node_rank", 0) >= nodes or (nodes > 1 and not re.fullmatch(r".+:\d+", several["rendezvous"])):
        raise RecipeError(
            f"--nodes {nodes}: give a --node-rank from 0 to {nodes - 1}, and node 0's address, such as --rendezvous "
            "host0:29500."
        )
    slurm = parse_slurm(options["slurm_words"]) if options["executor"] == "slurm" else None
    processes = options["processes"] or 1
    return Hardware(gpus=gpus, cpu_processes=processes, cpus=cpus, slots=tuple(slots), slurm=slurm, **several)
