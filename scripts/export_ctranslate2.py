"""Writes a checkpoint as a model directory of CTranslate2: `python scripts/export_ctranslate2.py --help`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this copy of the code, whichever is installed

QUANTIZATIONS = ("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Where the dictionaries (dict.LANGUAGE.txt) are, if not where the training had them.",
)
@click.option(
    "--quantization", type=click.Choice(QUANTIZATIONS), help="Of the weights; by default they stay as they are."
)
@click.option(
    "--sample",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Source text to compare translations of, a sentence a line; by default sentences of the validation set.",
)
@click.option(
    "--sentencepiece",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="SentencePiece's model, to be put beside; by default the recipe's. Without it, a sample's lines are subwords.",
)
@click.option("--force", is_flag=True, help="Replace OUTPUT, if it is a model directory of CTranslate2.")
def main(
    checkpoint: Path,
    output: Path,
    data: Path | None,
    quantization: str | None,
    sample: Path | None,
    sentencepiece: Path | None,
    force: bool,
) -> None:
    """Write CHECKPOINT, trained or averaged, as the model directory OUTPUT of CTranslate2.

    \b
    export_ctranslate2.py averaged.pt served
    export_ctranslate2.py averaged.pt served --quantization int8 --sample newstest.en

    OUTPUT appears only after both, in single precision, gave the same log-probabilities. Its export.json holds the
    options of translate_batch for fairseq's search.
    """
    logging.disable(logging.ERROR)  # what libraries say at their import, and errors that are said here anyway
    try:
        from fairseq_posenc.export import ExportError, export
    except ImportError as error:
        raise click.ClickException(str(error)) from None
    try:
        verification = export(
            checkpoint,
            output,
            data=data,
            quantization=quantization,
            sample=sample,
            sentencepiece=sentencepiece,
            force=force,
            say=click.echo,
        )
    except ExportError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{verification}\nwrote {output} ({quantization or 'float32'})")


if __name__ == "__main__":
    main()
