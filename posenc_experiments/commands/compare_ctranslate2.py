"""`fairseq-posenc compare-ctranslate2`: speed and BLEU of an exported model beside fairseq's."""

import logging
from pathlib import Path

import click

FILE = click.Path(path_type=Path)
NUMBER = click.IntRange(min=1)


@click.command()
@click.argument("checkpoint", type=FILE)
@click.argument("directory", type=FILE)
@click.option("--source", type=FILE, required=True, help="Raw source text, one sentence a line.")
@click.option("--reference", type=FILE, required=True, help="Its raw translation.")
@click.option("--data", type=FILE, help="Directory of the dictionaries, if not that of the training.")
@click.option(
    "--compute-type",
    "compute_types",
    multiple=True,
    default=("float32", "int8"),
    show_default=True,
    help="Precision of CTranslate2's weights; may be repeated.",
)
@click.option("--beam", type=NUMBER, default=5, show_default=True)
@click.option("--lenpen", type=float, default=1.0, show_default=True, help="log P is divided by length^lenpen.")
@click.option("--max-tokens", type=NUMBER, default=12000, show_default=True, help="Source tokens of a batch.")
@click.option("--threads", type=NUMBER, default=1, show_default=True)
@click.option(
    "--rounds",
    type=NUMBER,
    default=3,
    show_default=True,
    help="Each system translates the text once in each round; one more comes first, to warm up.",
)
def main(
    checkpoint: Path,
    directory: Path,
    source: Path,
    reference: Path,
    data: Path | None,
    compute_types: tuple[str, ...],
    beam: int,
    lenpen: float,
    max_tokens: int,
    threads: int,
    rounds: int,
) -> None:
    """Translates a text with fairseq and with CTranslate2, and prints sentences a second and SacreBLEU of each.

    fairseq uses CHECKPOINT, CTranslate2 uses DIRECTORY, its export. They take turns on the CPU, with the same batches.
    DIRECTORY's sentencepiece.model, or else the recipe's, splits the text; without either, text is taken as subwords.

    \b
    fairseq-posenc compare-ctranslate2 averaged.pt served --source test.en --reference test.de
    """
    logging.disable(logging.ERROR)  # libraries log at their import; errors are raised too
    from fairseq_posenc.export import measure
    from fairseq_posenc.export.search import Search

    measurement = measure(
        checkpoint,
        directory,
        source,
        reference,
        data=data,
        compute_types=compute_types,
        search=Search(beam, lenpen),
        max_tokens=max_tokens,
        threads=threads,
        rounds=rounds,
        say=lambda text: click.echo(text, err=True),
    )
    click.echo(measurement)
