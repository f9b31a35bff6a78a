"""`fairseq-posenc estimate-cost`: the GPU-hours of the papers' tables, from the measured words/s of one GPU.

A training takes (updates) x (words an update) target words. One measurement serves models of all sizes: a model's
words/s are those of the measured model, divided by the ratio of the multiplications that one source token (in the
encoder's matrices) and one target token (in the decoder's and the output's) need.
"""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click
from tabulate import tabulate  # type: ignore[import-untyped]

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.read_recipe import conf_in, read_recipe
from posenc_experiments.commands.number_types import Positive
from posenc_experiments.evaluation.tables.paper_table import read_table

MEASURED = "wmt_en_de"  # the size of the model whose words/s are given
WORDS_PER_TOKEN = 25_000 / 32_768  # real target words in a token of the papers' batches, which count padding


class Estimate(NamedTuple):
    """The cost of a table with one seed."""

    table: str
    trainings: int
    words: float
    hours: float


def multiplications(size: str, flags: dict[str, str], vocabulary: int) -> int:
    """Multiplications by weights in the forward pass of one source and one target token."""
    from fairseq.models import ARCH_CONFIG_REGISTRY

    numbers = {name.replace("-", "_"): int(value) for name, value in flags.items() if value.isdecimal()}
    args = Namespace(**numbers)
    ARCH_CONFIG_REGISTRY[f"transformer_{size}"](args)
    encoder, decoder = args.encoder_embed_dim, args.decoder_embed_dim
    source = args.encoder_layers * (4 * encoder**2 + 2 * encoder * args.encoder_ffn_embed_dim)
    target = args.decoder_layers * (8 * decoder**2 + 2 * decoder * args.decoder_ffn_embed_dim)
    return int(source + target + decoder * vocabulary)


def estimates(recipes: Sequence[Path], words_per_second: float) -> Iterator[Estimate]:
    """Estimates the cost of each table of the recipes.

    Raises:
        RecipeError: a directory has no tables, or a training no number of updates.
    """
    for folder in recipes:
        tables = sorted((folder / "tables").glob("*.tsv"))
        if not tables:
            raise RecipeError(f"{folder} has no tables/*.tsv: name the directory of a recipe with tables of papers.")
        for path in tables:
            trainings = {(row.pair, row.conf, row.experiment) for row in read_table(folder, path.stem).rows}
            hours = words = 0.0
            for _, conf, _ in trainings:
                recipe = read_recipe(conf_in(folder, conf, str(path)))
                updates, batch = recipe.train.flags.get("max-update"), recipe.train.batch_tokens
                if not updates or not batch:
                    missing = "batch-tokens" if updates else "max-update"
                    raise RecipeError(f"{recipe.path} has no {missing} in `train`: add it, the estimate needs it.")
                vocabulary = recipe.prepare.vocabulary
                measured = multiplications(MEASURED, {}, vocabulary)
                relative = multiplications(recipe.model.size, recipe.model.flags, vocabulary) / measured
                target_words = float(updates) * batch * WORDS_PER_TOKEN
                words += target_words
                hours += target_words * relative / words_per_second / 3600
            yield Estimate(path.stem, len(trainings), words, hours)


@click.command()
@click.argument("recipes", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--words-per-second",
    type=Positive(),
    required=True,
    help="Target words/s of one GPU in training transformer_wmt_en_de (d 512, ffn 2048).",
)
def main(recipes: tuple[Path, ...], words_per_second: float) -> None:
    """Estimates the GPU-hours of papers' tables.

    RECIPES are directories that hold tables, such as recipes/wmt14.
    """
    rows = [
        [one.table, one.trainings, f"{one.words / 1e9:,.1f}", f"{one.hours:,.0f}"]
        for one in estimates(recipes, words_per_second)
    ]
    click.echo(tabulate(rows, ["table", "trainings", "billion words", "GPU-hours"], tablefmt="github"))
