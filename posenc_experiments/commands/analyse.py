"""`fairseq-posenc analyse`: what experiments learned and where they differ, as analysis.json and a page."""

from pathlib import Path

import click

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.commands.model_options import cpu_option, data_option


@click.command()
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("analysis.html"),
    show_default=True,
    help="The page: one HTML file that needs no network.",
)
@click.option(
    "--baseline", metavar="NAME", help="The baseline of the p-values when the page is opened.  [default: the first]"
)
@click.option(
    "--test",
    metavar="NAME",
    help="The test set of the page; for a --checkpoint alone a subset of --data.  [default: the first]",
)
@click.option(
    "--checkpoint",
    "paths",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A checkpoint without an experiment directory; needs --data and --pair. May be repeated.",
)
@data_option
@click.option("--pair", metavar="en-de", help="Source and target language of --checkpoint.")
@click.option(
    "--sentences",
    type=click.IntRange(min=1),
    metavar="N",
    help="Models read N, spread over the test set.  [default: all]",
)
@cpu_option
@click.option("--no-models", is_flag=True, help="Analyse texts and logs only.")
def main(
    directories: tuple[Path, ...],
    output: Path,
    baseline: str | None,
    test: str | None,
    paths: tuple[Path, ...],
    binarized: Path | None,
    pair: str | None,
    sentences: int | None,
    cpu: bool,
    no_models: bool,
) -> None:
    """Analyses scored experiments and their models: writes a page, and analysis.json into each experiment's directory.

    \b
    fairseq-posenc analyse output/multi30k/en-de --baseline sinusoidal --output multi30k.html
    fairseq-posenc analyse --checkpoint model.pt --data data-bin --pair en-de

    DIRECTORIES are experiment directories (seedN), or directories that hold them at any depth, of one corpus and pair.
    What is unchanged since the last call is not analysed again. docs/analysis.md says what the page shows.
    """
    if not directories and not paths:
        raise RecipeError("Name directories of experiments, or a --checkpoint.")
    if paths and no_models:
        raise RecipeError("--no-models leaves nothing of a --checkpoint: leave one of them out.")
    from posenc_experiments.analysis.analyse import analyse, checkpoints_of

    analyse(
        directories,
        output,
        click.echo,
        baseline=baseline,
        test=test,
        checkpoints=checkpoints_of(paths, binarized, pair, test),
        binarized=binarized,
        sentences=sentences,
        models=not no_models,
        cpu=cpu,
    )
