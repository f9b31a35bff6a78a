"""`fairseq-posenc table`: runs the experiments of a paper's table, and prints them beside the paper's figures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.run import STAGES, Run
from posenc_experiments.base.settings import conf_in, read_recipe
from posenc_experiments.commands.options import Call, shared_options
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.evaluation.paper_table import PaperTable, Planned, TableRow, read_table
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.workflow.pipeline import finish, run_plan
from posenc_experiments.workflow.plan import make_plan


@click.command()
@click.option(
    "--recipe",
    "folder",
    type=click.Path(path_type=Path),
    required=True,
    help="The recipe's directory; table.sh sets it.",
)
@click.argument("name", required=False)
@click.option("--show", is_flag=True, help="Run nothing; print and write the table of the results so far.")
@shared_options
def main(folder: Path, name: str | None, show: bool, **options: Any) -> None:
    """Trains, translates and scores what is missing of a paper's table, and prints it beside the paper's figures.

    NAME is a file of the recipe's tables/, without .tsv. Give the same command again to resume after a kill: finished
    stages are skipped, and an interrupted training resumes.
    """
    table = read_table(folder, name, options["overrides"])
    call = Call(options, 1)
    rows = make_rows(table, folder.absolute(), call)
    plan = make_plan([one for row in rows for one in row.experiments], list(STAGES[:-1]))
    failures = {} if show else run_plan(plan)
    if not options["dry_run"]:
        from posenc_experiments.evaluation.paper import write_report

        failed = {directory for directory, job in plan.experiment_jobs.items() if job in failures}
        click.echo(write_report(table, rows, failed))
    finish(failures)


def make_rows(table: PaperTable, folder: Path, call: Call) -> list[Planned]:
    """The experiments of each row; RecipeError if a row names a pair, experiment or test set that its recipe lacks."""
    runs: dict[tuple[str, str], Run] = {}
    rows = []
    for row in table.rows:
        if (row.conf, row.pair) not in runs:
            path = conf_in(folder, row.conf, row.where)
            runs[row.conf, row.pair] = call.run(read_recipe(path, call.options["overrides"]), row.pair)
        run = runs[row.conf, row.pair]
        for kind, name, known in _names(row, run):
            if name not in known:
                raise RecipeError(
                    f"{row.where}: {run.recipe.path.name} has no {kind} '{name}'; it has {', '.join(known)}."
                )
        rows.append(Planned(row, [Experiment(run, row.experiment, seed) for seed in call.seeds]))
    return rows


def _names(row: TableRow, run: Run) -> Iterator[tuple[str, str, list[str]]]:
    """Each name in a row: its kind, the name, and the names of that kind in the recipe."""
    yield "pair", row.pair, run.recipe.pairs
    yield "experiment", row.experiment, list(run.recipe.experiments)
    yield "test set", row.test, pair_tests(run)
