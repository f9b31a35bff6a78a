"""The command line of every recipe: `python -m recipes.common --recipe recipes/<corpus> [--conf NAME] [options]`."""

import importlib.util
import os
import re
import sys
from pathlib import Path

import click

from posenc_experiments.cli import HELP_OPTIONS
from posenc_experiments.errors import RecipeError
from posenc_experiments.workflow.run import ROOT, STAGES, Run
from posenc_experiments.workflow.settings import Recipe, parse_flags, read_recipe
from posenc_experiments.workflow.sweep import choose_experiments


def parse_stages(text: str) -> list[str]:
    """`prepare..score`, or a list such as `translate,score`, in the pipeline's order."""
    names = [name.strip() for name in text.replace("..", ",").split(",")]
    for name in names:
        if name not in STAGES:
            raise RecipeError(f"--stages {text}: '{name}' is not a stage; the stages are {' '.join(STAGES)}.")
    if ".." not in text:
        return [stage for stage in STAGES if stage in names]
    first, last = (STAGES.index(name) for name in (names[0], names[-1]))
    if len(names) != 2 or first > last:
        raise RecipeError(f"--stages {text}: write first..last, such as prepare..score.")
    return list(STAGES[first : last + 1])


def choose_pair(recipe: Recipe, pair: str | None) -> str:
    if pair is not None and pair not in recipe.pairs:
        raise RecipeError(
            f"--pair {pair}: {recipe.path.name} has no such pair; its pairs are {', '.join(recipe.pairs)}."
        )
    return pair or recipe.pairs[0]


def choose_seeds(text: str) -> list[int]:
    words = text.replace(",", " ").split()
    if not words or not all(word.isdecimal() and int(word) < 1 << 32 for word in words):
        raise RecipeError(f"--seeds {text}: write whole numbers below {1 << 32}, such as 1,2,3.")
    return list(dict.fromkeys(map(int, words)))


def count_gpus() -> int:
    """The GPUs that PyTorch sees."""
    import torch

    return torch.cuda.device_count()


def require_gpus(wanted: int, found: int) -> None:
    """RecipeError if there are fewer than were asked for."""
    if wanted > found:
        raise RecipeError(f"--gpus {wanted}: PyTorch sees {found}; ask for no more, or give --gpus 0 for the CPU.")


def find_conf(folder: Path | None, conf: str | None) -> Path:
    """The .conf that is meant: a path, or the name of one in the recipe's directory."""
    if conf is None:
        if folder is None:
            raise RecipeError("--conf is missing: name a .conf file, or call a recipe's run.sh.")
        conf = folder.name
    if folder is None or conf.endswith(".conf"):
        return Path(conf)
    path = folder / f"{conf}.conf"
    if not path.is_file():
        names = ", ".join(sorted(one.stem for one in folder.glob("*.conf")))
        raise RecipeError(f"--conf {conf}: {folder} has no {path.name}; it has {names}.")
    return path


def check_hardware(
    gpus: int,
    processes: int | None,
    nodes: int,
    node_rank: int,
    rendezvous: str,
    precision: str | None,
    wandb: str | None,
) -> None:
    """RecipeError for options that do not go together."""
    if gpus and processes not in (None, gpus):
        raise RecipeError(f"--processes {processes}: with --gpus {gpus} it is one process a GPU; leave it out.")
    if node_rank >= nodes:
        raise RecipeError(f"--node-rank {node_rank}: with --nodes {nodes} ranks go from 0 to {nodes - 1}.")
    address = re.fullmatch(r"(?:[^\s:]+|\[[^\s\]]+\]):(\d{1,5})", rendezvous)
    if nodes > 1 and not (address and int(address[1]) < 1 << 16):
        raise RecipeError(f"--rendezvous '{rendezvous}': --nodes {nodes} need node 0's address, such as host0:29500.")
    if precision == "bf16" and not gpus:
        raise RecipeError("--precision bf16 needs a GPU: fairseq takes bf16 without one for a TPU; leave it out.")
    if precision == "fp16" and not gpus:
        raise RecipeError("--precision fp16 needs a GPU: on a CPU it only costs time; leave it out.")
    if wandb and importlib.util.find_spec("wandb") is None:
        raise RecipeError(f"--wandb {wandb}: the package wandb is not installed; run `pip install wandb` and log in.")


@click.command(context_settings=HELP_OPTIONS)
@click.option("--recipe", "folder", type=click.Path(path_type=Path), help="Its directory; its run.sh sets this.")
@click.option("--conf", help="A .conf file, or the name of one of the recipe's own; its run.sh sets a default.")
@click.option("--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE", help="Changes a value of the .conf.")
@click.option("--pair", help="Source and target language, such as en-de; the recipe's first if left out.")
@click.option(
    "--experiments",
    multiple=True,
    metavar="NAMES|SWEEP",
    help="Names from the .conf, with commas between; or an encoding (or a name) and flags, whose commas multiply, such "
    "as 'shaw --clipping-distance 0,1,2'. May be repeated; compare keeps this order.  [default: the .conf's 'default']",
)
@click.option("--seeds", default="1", show_default=True, help="Each experiment is run once a seed, such as 1,2,3.")
@click.option(
    "--stages",
    default=f"{STAGES[0]}..{STAGES[-1]}",
    show_default=True,
    help=f"first..last or a list of: {', '.join(STAGES)}.",
)
@click.option(
    "--source",
    type=click.Path(path_type=Path),
    help="Take the corpus's files from this directory instead of the network.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=ROOT / "data",
    help="Downloaded and prepared data.  [default: data]",
)
@click.option(
    "--output-dir",
    type=click.Path(path_type=Path),
    default=ROOT / "output",
    help="Experiment directories.  [default: output]",
)
@click.option("--gpus", type=click.IntRange(min=0), help="GPUs of this node, 0 for the CPU; all there are if left out.")
@click.option("--processes", type=click.IntRange(min=1), help="Training processes on a CPU; on GPUs it is one a GPU.")
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="Machines that train together.")
@click.option(
    "--node-rank",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Which of --nodes this is: 0 runs all stages, the others join its trainings.",
)
@click.option("--rendezvous", metavar="HOST:PORT", default="", help="Where the nodes meet: an address of node 0.")
@click.option("--precision", type=click.Choice(["fp32", "fp16", "bf16"]), help="In training.  [default: the .conf's]")
@click.option("--tensorboard", is_flag=True, help="Writes event files into each experiment's directory.")
@click.option("--wandb", metavar="PROJECT", help="Reports to this project of Weights & Biases.")
@click.option(
    "--cpus",
    type=click.IntRange(min=1),
    default=len(os.sched_getaffinity(0)),
    help="CPU threads or processes.  [default: all]",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Experiments at a time on the CPU, which share --cpus; 0: one for each CPU.",
)
@click.option("--dry-run", is_flag=True, help="Print every command that would be run; run and write nothing.")
@click.argument("extra", nargs=-1, metavar="[-- FAIRSEQ-TRAIN FLAGS]")
def main(
    folder: Path | None,
    conf: str | None,
    overrides: tuple[str, ...],
    pair: str | None,
    experiments: tuple[str, ...],
    seeds: str,
    stages: str,
    source: Path | None,
    data_dir: Path,
    output_dir: Path,
    gpus: int | None,
    processes: int | None,
    nodes: int,
    node_rank: int,
    rendezvous: str,
    precision: str | None,
    tensorboard: bool,
    wandb: str | None,
    cpus: int,
    jobs: int,
    dry_run: bool,
    extra: tuple[str, ...],
) -> None:
    """Downloads and prepares a corpus, trains each experiment, averages, translates, scores, and prints the
    table.

    Every stage is resumable: a run that was stopped, or killed, goes on when it is started again.
    """
    recipe = read_recipe(find_conf(folder, conf), overrides)
    recipe, names = choose_experiments(recipe, experiments)
    wanted = parse_stages(stages)
    if source is not None and recipe.corpus.generator is not None:
        raise RecipeError(f"--source: {recipe.corpus.name} makes its text itself; leave the option out.")
    if source is not None and not source.is_dir():
        raise RecipeError(f"--source {source}: there is no such directory.")
    gpus = count_gpus() if gpus is None else gpus
    check_hardware(gpus, processes, nodes, node_rank, rendezvous, precision, wandb)
    if gpus and not dry_run:
        require_gpus(gpus, count_gpus())
    run = Run(
        recipe=recipe,
        pair=choose_pair(recipe, pair),
        data_dir=data_dir.absolute(),
        output_dir=output_dir.absolute(),
        python=sys.executable,
        gpus=gpus,
        cpu_processes=processes or 1,
        nodes=nodes,
        node_rank=node_rank,
        rendezvous=rendezvous,
        precision=precision,
        tensorboard=tensorboard,
        wandb=wandb,
        cpus=cpus,
        jobs=1 if gpus or nodes > 1 else min(jobs or cpus, cpus),
        source_dir=source.absolute() if source else None,
        extra=parse_flags(list(extra), "the flags behind --"),
        dry_run=dry_run,
    )
    from posenc_experiments.workflow.pipeline import run_stages

    run_stages(run, wanted, names, choose_seeds(seeds))
