"""`fairseq-posenc compare-ctranslate2`: speed and BLEU of an exported model beside fairseq's."""

import logging
from pathlib import Path
from typing import Any

import click

FILE = click.Path(path_type=Path)
NUMBER = click.IntRange(min=1)


@click.command()
@click.argument("checkpoint", type=FILE)
@click.argument("directory", type=FILE)
@click.option("--source", type=FILE, required=True, help="Raw source text, one sentence a line.")
@click.option("--reference", type=FILE, required=True, help="Its raw translation.")
@click.option("--data", type=FILE, help="Directory of the dictionaries, if not that of the training.")
@click.option("--threads", type=NUMBER, default=1, show_default=True)
@click.option(
    "--rounds",
    type=NUMBER,
    default=3,
    show_default=True,
    help="Each system translates the text once in each round; one more comes first, to warm up.",
)
@click.option(
    "--clock",
    type=click.Choice(["wall", "cpu"]),
    default="wall",
    show_default=True,
    help="cpu: CPU seconds of all threads, for a machine that others use too.",
)
def main(checkpoint: Path, directory: Path, source: Path, reference: Path, **options: Any) -> None:
    """Translates a text with fairseq and with CTranslate2, and prints sentences a second and SacreBLEU of each.

    fairseq uses CHECKPOINT, CTranslate2 uses DIRECTORY, its export, in float32 and in int8. They take turns on the CPU,
    with the same batches, and search as fairseq-generate does by default.
    DIRECTORY's sentencepiece.model, or else the recipe's, splits the text; without either, text is taken as subwords.

    \b
    fairseq-posenc compare-ctranslate2 averaged.pt served --source test.en --reference test.de
    """
    logging.disable(logging.ERROR)  # libraries log at their import; errors are raised too
    from fairseq_posenc.export import measure

    click.echo(measure(checkpoint, directory, source, reference, **options))
