"""What the papers' tables cost in GPU-hours, from the words/s that one GPU was measured at.

Target words of a training = updates x words an update. A model's words/s follow from those of the measured model by
the multiplications that a token needs (all matrices of the encoder for a source token, of the decoder and the output
for a target token, taken as one of each), so that one measurement serves all sizes.
"""

from argparse import Namespace
from pathlib import Path

import click
from tabulate import tabulate  # type: ignore[import-untyped]

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.settings import read_recipe
from posenc_experiments.evaluation.paper_table import read_table

MEASURED = {"size": "wmt_en_de"}


def multiplications(size: str, flags: dict[str, str], vocabulary: int) -> int:
    """The multiplications of the forward pass of one source and one target token, without attention itself."""
    from fairseq.models import ARCH_CONFIG_REGISTRY

    import fairseq_posenc  # noqa: F401 # registers the architectures

    numbers = {name.replace("-", "_"): int(value) for name, value in flags.items() if value.isdecimal()}
    args = Namespace(**numbers)
    ARCH_CONFIG_REGISTRY[f"transformer_sinusoidal_{size}"](args)
    encoder, decoder = args.encoder_embed_dim, args.decoder_embed_dim
    of_encoder = args.encoder_layers * (4 * encoder**2 + 2 * encoder * args.encoder_ffn_embed_dim)
    of_decoder = args.decoder_layers * (8 * decoder**2 + 2 * decoder * args.decoder_ffn_embed_dim)
    return int(of_encoder + of_decoder + decoder * vocabulary)


@click.command()
@click.argument("recipes", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--words-per-second",
    type=click.FloatRange(min=0, min_open=True),
    required=True,
    help="Target words/s of one GPU in training transformer_wmt_en_de (d 512, ffn 2048).",
)
@click.option(
    "--words-per-update",
    type=click.IntRange(min=1),
    default=25_000,
    show_default=True,
    help="Real target words of a batch (wpb in fairseq's log).",
)
def main(recipes: tuple[Path, ...], words_per_second: float, words_per_update: int) -> None:
    """Estimates the GPU-hours of papers' tables: RECIPES are directories that hold tables, such as recipes/wmt14."""
    rows = []
    for folder in recipes:
        for path in sorted((folder / "tables").glob("*.tsv")):
            trainings = {(row.pair, row.conf, row.experiment) for row in read_table(folder, path.stem).rows}
            hours = words = 0.0
            for _, conf, _ in trainings:
                recipe = read_recipe(folder / f"{conf}.conf")
                if "max-update" not in recipe.train:
                    raise RecipeError(f"{recipe.path} has no max-update in [train], from which the cost follows.")
                vocabulary = recipe.prepare.vocabulary
                relative = multiplications(recipe.size, recipe.model, vocabulary) / multiplications(
                    MEASURED["size"], {}, vocabulary
                )
                target_words = float(recipe.train["max-update"]) * words_per_update
                words += target_words
                hours += target_words * relative / words_per_second / 3600
            rows.append([path.stem, len(trainings), f"{words / 1e9:,.1f}", f"{hours:,.0f}"])
    click.echo(tabulate(rows, ["table", "trainings", "billion words", "GPU-hours"], tablefmt="github"))
