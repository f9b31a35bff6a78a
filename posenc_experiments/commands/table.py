"""`fairseq-posenc table`: what a paper's table compares, printed beside the paper's figures."""

from pathlib import Path
from typing import Any

import click

from posenc_experiments.base.run import STAGES
from posenc_experiments.commands.options import Call, shared_options
from posenc_experiments.workflow.pipeline import finish, run_plan
from posenc_experiments.workflow.plan import make_plan
from posenc_experiments.workflow.rows import make_rows, read_table


@click.command()
@click.option("--recipe", "folder", type=click.Path(path_type=Path), required=True, help="Set by table.sh.")
@click.argument("name", required=False)
@click.option("--show", is_flag=True, help="Only print the table of what is there.")
@shared_options
def main(folder: Path, name: str | None, show: bool, **options: Any) -> None:
    """Trains, translates and scores what is missing of a paper's table, and prints it beside the paper's figures.

    NAME is a file of the recipe's tables/, without .tsv. A call that was killed is simply made again: what is done is
    passed over, what was cut short resumes.
    """
    table = read_table(folder, name)
    call = Call(options, 1)
    rows = make_rows(table, folder.absolute(), call)
    plan = make_plan([one for row in rows for one in row.experiments], list(STAGES[:-1]), call.hardware.elsewhere)
    failures = {} if show else run_plan(plan, call.hardware)
    if not options["dry_run"]:
        from posenc_experiments.evaluation.paper import report

        failed = {directory for directory, job in plan.trainings.items() if job in failures}
        click.echo(report(table, rows, failed))
    finish(failures)
