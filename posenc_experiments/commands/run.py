"""`fairseq-posenc run`: runs experiments of one recipe, from its corpus to a table of scores."""

from pathlib import Path
from typing import Any

import click

from posenc_experiments.base.errors import RecipeError, meant
from posenc_experiments.base.read_recipe import conf_in, find_recipe, read_recipe, words
from posenc_experiments.base.recipe import Recipe
from posenc_experiments.commands.analyse import analyse_run
from posenc_experiments.commands.number_types import Count
from posenc_experiments.commands.options import Call, Command, shared_options
from posenc_experiments.evaluation.compare import compare
from posenc_experiments.experiment.experiment import make_experiments
from posenc_experiments.workflow.pipeline import finish, run_plan
from posenc_experiments.workflow.plan import STAGES, make_plan
from posenc_experiments.workflow.sweep import choose_experiments


def parse_stages(text: str) -> list[str]:
    """Parses `prepare..score`, or a list such as `translate,score`; returns stages in the pipeline's order."""
    first, dots, last = text.partition("..")
    names = [first, last] if dots else words(text)
    for name in names:
        if name not in STAGES:
            near = meant(name, STAGES)
            raise RecipeError(f"--stages {text}: '{name}' is not a stage{near}; the stages are {' '.join(STAGES)}.")
    if not dots:
        return [stage for stage in STAGES if stage in names]
    chosen = list(STAGES[STAGES.index(first) : STAGES.index(last) + 1])
    if not chosen:
        raise RecipeError(f"--stages {text}: write first..last, such as prepare..score.")
    return chosen


def choose_pair(recipe: Recipe, pair: str | None) -> str:
    """The value of --pair, or the recipe's first; RecipeError if the recipe has no such pair."""
    if pair is not None and pair not in recipe.pairs:
        raise RecipeError(
            f"--pair {pair}: {recipe.path.name} has no such pair; its pairs are {', '.join(recipe.pairs)}."
        )
    return pair or recipe.pairs[0]


def find_conf(folder: Path | None, conf: str | None) -> Path:
    """The path of the recipe: `conf` is a path, or a name in the directory, by default the directory's own."""
    if conf is None:
        if folder is None:
            raise RecipeError("Name a recipe, such as quickstart, or a YAML file with --conf.")
        conf = folder.name
    if folder is None or conf.endswith(".yaml"):
        return Path(conf)
    return conf_in(folder, conf, f"--conf {conf}")


RUN_OPTIONS = [
    click.option(
        "--experiments",
        multiple=True,
        metavar="NAMES|SWEEP",
        help="Names from the recipe, with commas between; or an encoding (or a name) and flags, whose commas multiply, "
        "such as 'shaw --clipping-distance 0,1,2'. May be repeated; the table keeps this order.  [default: the "
        "recipe's 'default']",
    ),
    click.option(
        "--stages", default=f"{STAGES[0]}..{STAGES[-1]}", help=f"first..last or a list of: {', '.join(STAGES)}."
    ),
    click.option("--nodes", type=Count(), default=1, help="Machines that train together."),
    click.option(
        "--node-rank",
        type=Count(0),
        default=0,
        help="Which of --nodes this is: 0 runs all stages, the others join its trainings.",
    ),
    click.option(
        "--analyse",
        is_flag=True,
        help="At the end, also run `fairseq-posenc analyse`, and write its page beside the table.",
    ),
    click.option(
        "--rendezvous",
        metavar="HOST:PORT",
        default="",
        show_default=False,
        help="Where the nodes meet: an address of node 0.",
    ),
]


def run_options(command: Command) -> Command:
    """Adds the options of `run_conf` to a command."""
    return shared_options(command, RUN_OPTIONS)


def _gpus_of_a_batch(recipe: Recipe) -> int | None:
    """The number of GPUs among which a batch is divided without smaller steps; None if a batch has no fixed size."""
    tokens, max_tokens = recipe.train.batch_tokens, recipe.train.flags.get("max-tokens", "")
    return max(1, tokens // max(1, int(max_tokens))) if tokens and max_tokens.isdecimal() else None


def run_conf(
    conf: Path, pair: str | None, experiments: tuple[str, ...], stages: str, analyse: bool, **options: Any
) -> None:
    """Runs stages of experiments of one recipe; `Call` takes the `options`."""
    recipe = read_recipe(conf, options["overrides"])
    (recipe, names), wanted = choose_experiments(recipe, experiments), parse_stages(stages)
    if options["node_rank"]:  # it only joins trainings
        wanted, analyse = [stage for stage in wanted if stage == "train"], False
    call = Call(options, None if options["nodes"] > 1 else _gpus_of_a_batch(recipe))
    run = call.run(recipe, choose_pair(recipe, pair))
    plan = make_plan(make_experiments(run, names, call.seeds), wanted)
    chosen, seeds = [one.name for one in plan.experiments if one.seed == call.seeds[0]], ", ".join(map(str, call.seeds))
    run.say(f"{run.recipe.path.stem} {run.pair}: {', '.join(chosen)}; seed {seeds}; stages {', '.join(wanted)}")
    run.say(f"results: {run.pair_results_dir}; data: {run.pair_dir}")
    if "compare" in wanted and not run.dry_run:
        from posenc_experiments.evaluation.scores.neural import check_neural  # not for --help

        check_neural(run)
    finish(run_plan(plan))
    if "compare" in wanted:
        compare(run, plan.experiments)
    if analyse:
        analyse_run(run, plan.experiments)


@click.command()
@click.argument("recipe", required=False)
@click.option("--conf", help="A YAML file, or the name of one of RECIPE's.  [default: that with RECIPE's name]")
@click.option("--pair", help="Source and target language, such as en-de; the recipe's first pair if left out.")
@run_options
def main(recipe: str | None, conf: str | None, extra: tuple[str, ...], **options: Any) -> None:
    """Runs a recipe's experiments: downloads and prepares its corpus, trains, averages, translates, scores, and prints
    the table.

    \b
    fairseq-posenc run quickstart --jobs 0                                   # ten minutes on 2 CPU cores
    fairseq-posenc run multi30k --pair en-fr --experiments sinusoidal,shaw-k16 --seeds 1,2,3
    fairseq-posenc run multi30k --experiments 'shaw --clipping-distance 0,1,2' --dry-run

    RECIPE is the name of one that comes with this package, or the directory of another. Results are in
    output/CORPUS/PAIR, data in data/CORPUS/PAIR, both below the current directory unless --output-dir and --data-dir
    say otherwise; a recipe's run.sh writes them into its repository. Give the same command again to resume what was
    stopped or killed. After its first updates, each training prints how long it will take.
    """
    if recipe is not None and recipe.startswith("-"):  # there is no RECIPE, and this is the first word after `--`
        extra, recipe = (recipe, *extra), None
    run_conf(find_conf(None if recipe is None else find_recipe(recipe), conf), extra=extra, **options)
