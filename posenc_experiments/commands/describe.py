"""`fairseq-posenc describe`: a table of architectures with the parameters that each spends on positions.

fairseq-posenc describe transformer_shaw_wmt_en_de transformer_t5_wmt_en_de -- --share-all-embeddings
"""

import itertools
import logging

import click

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.commands.number_types import Count
from posenc_experiments.evaluation.tables.report import FORMATS


@click.command()
@click.argument("archs", nargs=-1, required=True, metavar="ARCH... [-- FLAGS...]")
@click.option(
    "--vocabulary",
    type=Count(5),
    default=32768,
    help="Entries of each language's dictionary, fairseq's four special ones included.",
)
@click.option("--format", "style", type=click.Choice(FORMATS), default="text")
def main(archs: tuple[str, ...], vocabulary: int, style: str) -> None:
    """Counts the parameters that each ARCH of this package spends on positions, and all its parameters.

    FLAGS are flags of fairseq-train for every ARCH, such as --clipping-distance 4. Nothing is trained, and no data is
    needed.
    """
    names = list(itertools.takewhile(lambda argument: not argument.startswith("-"), archs))
    flags = archs[len(names) :]
    logging.disable(logging.WARNING)  # libraries log at their import
    from posenc_experiments.evaluation.measurements import parameters

    if not names:
        raise RecipeError("name an architecture before the flags.")
    rows = [parameters.describe(name, flags, vocabulary) for name in names]
    click.echo(parameters.report(rows).format(style), nl=False)
