"""`fairseq-posenc analyse`: what experiments learned and where they differ, as analysis.json and a page."""

from pathlib import Path
from typing import Any

import click

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.run import Run
from posenc_experiments.commands.model_options import cpu_option, data_option
from posenc_experiments.commands.number_types import Count
from posenc_experiments.experiment.experiment import Experiment


@click.command()
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("analysis.html"),
    help="The page: one HTML file that needs no network.",
)
@click.option(
    "--baseline",
    metavar="NAME",
    help="A row's name or a part of it: the others are compared with it when the page opens.  [default: the first]",
)
@click.option(
    "--test",
    metavar="NAME",
    help="The test set of the page; for a --checkpoint alone a subset of --data.  [default: the first]",
)
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A checkpoint without an experiment directory; needs --data and --pair. May be repeated.",
)
@data_option
@click.option("--pair", metavar="en-de", help="Source and target language of --checkpoint.")
@click.option("--sentences", type=Count(), metavar="N", help="Models read N, spread over the test set.  [default: all]")
@cpu_option
@click.option("--no-models", is_flag=True, help="Analyse texts only.")
def main(directories: tuple[Path, ...], checkpoints: tuple[Path, ...], no_models: bool, **options: Any) -> None:
    """Analyses scored experiments and their models: writes a page, and analysis.json into each experiment's directory.

    \b
    fairseq-posenc analyse output/multi30k/en-de --baseline sinusoidal --output multi30k.html
    fairseq-posenc analyse --checkpoint model.pt --data data-bin --pair en-de

    DIRECTORIES are experiment directories (seedN), or directories that hold them at any depth, of one corpus and pair.
    What is unchanged since the last call is not analysed again. docs/analysis.md says what the page shows.
    """
    if not directories and not checkpoints:
        raise RecipeError("Name directories of experiments, or a --checkpoint.")
    from posenc_experiments.analysis.analyse import analyse

    analyse(directories, say=click.echo, checkpoints=checkpoints, models=not no_models, **options)


def analyse_run(run: Run, experiments: list[Experiment]) -> None:
    """The last stage of a recipe, `--analyse`: the page of one call's experiments."""
    directories = [experiment.directory for experiment in experiments]
    page, cpu = run.pair_results_dir / "analysis.html", not run.hardware.gpus
    if run.dry_run:
        options = ["--cpu"] * cpu
        run.dry([*run.module("posenc_experiments"), "analyse", *options, "--output", page, *directories])
        return
    # Here, because it imports sacrebleu and matplotlib, which --help and --dry-run need not wait for.
    from posenc_experiments.analysis.analyse import analyse

    analyse(directories, page, run.say, cpu=cpu)
