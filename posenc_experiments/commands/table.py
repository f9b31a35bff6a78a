"""`fairseq-posenc table`: runs the experiments of a paper's table, and prints them beside the paper's figures."""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import click

from posenc_experiments.base.errors import RecipeError, meant
from posenc_experiments.base.read_recipe import conf_in, find_recipe, read_recipe
from posenc_experiments.base.run import Run
from posenc_experiments.commands.options import Call, shared_options
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.evaluation.metrics import PAPER_METRICS
from posenc_experiments.evaluation.tables.paper_table import TableRow, read_table
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.workflow.pipeline import finish, run_plan
from posenc_experiments.workflow.plan import STAGES, make_plan


@click.command()
@click.argument("recipe")
@click.argument("name", required=False)
@click.option("--show", is_flag=True, help="Run nothing; print and write the table of the results so far.")
@shared_options
def main(recipe: str, name: str | None, show: bool, **options: Any) -> None:
    """Trains, translates and scores what is missing of a paper's table, and prints it beside the paper's figures.

    \b
    fairseq-posenc table multi30k published

    RECIPE is the name of one that comes with this package, or the directory of another; NAME is a file of its tables/,
    without .tsv. Results are in output/, data in data/, both below the current directory unless --output-dir and
    --data-dir say otherwise; a recipe's table.sh writes them into its repository. Give the same command again to resume
    after a kill: finished stages are skipped, and an interrupted training resumes.
    """
    folder = find_recipe(recipe)
    table = read_table(folder, name)
    call = Call(options, 1)
    rows = make_rows(table.rows, folder.absolute(), call)
    plan = make_plan([one for _, experiments in rows for one in experiments], list(STAGES[:-1]))
    failures = {} if show else run_plan(plan)
    if not options["dry_run"]:
        from posenc_experiments.evaluation.tables.paper import make_line, write_report

        failed = {directory for directory, job in plan.experiment_jobs.items() if job in failures}
        path = plan.experiments[0].run.results_dir / "tables" / str(name)
        click.echo(write_report(table.title, path, [make_line(row, experiments, failed) for row, experiments in rows]))
    finish(failures)


def make_rows(rows: Sequence[TableRow], folder: Path, call: Call) -> list[tuple[TableRow, list[Experiment]]]:
    """The rows with their experiments, one for each seed.

    Raises:
        RecipeError: a recipe lacks the pair, experiment or test set of a row, or does not compute its metric.
    """
    made, read = [], cache(partial(read_recipe, overrides=call.options["overrides"]))
    for row in rows:
        recipe = read(conf_in(folder, row.conf, row.where))
        run = call.run(recipe, row.pair)
        for kind, name, known in _names(row, run):
            if name not in known:
                near, has = meant(name, known), ", ".join(known)
                raise RecipeError(f"{row.where}: {recipe.path.name} has no {kind} '{name}'{near}; it has {has}.")
        tokenized = PAPER_METRICS[row.metric]
        if tokenized not in (None, recipe.score.tokenized):
            raise RecipeError(
                f"{row.where}: {recipe.path.name} does not compute {row.metric}: add --set score.tokenized={tokenized}."
            )
        made.append((row, [Experiment(run, row.experiment, seed) for seed in call.seeds]))
    return made


def _names(row: TableRow, run: Run) -> Iterator[tuple[str, str, list[str]]]:
    """Each name in a row: its kind, the name, and the names of that kind in the recipe."""
    yield "pair", row.pair, run.recipe.pairs
    yield "experiment", row.experiment, list(run.recipe.experiments)
    yield "test set", row.test, pair_tests(run)
