"""`fairseq-posenc export`: writes a checkpoint as a model directory of CTranslate2."""

import ast
import logging
from pathlib import Path
from typing import Any

import click

QUANTIZATIONS = ("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16")


def parse_overrides(context: click.Context, parameter: click.Parameter, text: str | None) -> dict[str, Any] | None:
    """Parses a dictionary, written as in Python."""
    if text is None:
        return None
    try:
        return dict(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError):
        raise click.BadParameter(f"{text} is not a dictionary: write one, such as {{'rotary_ntk_scale': 2}}.") from None


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Directory of the dictionaries (dict.LANGUAGE.txt), if not that of the training.",
)
@click.option(
    "--model-overrides",
    callback=parse_overrides,
    metavar="DICTIONARY",
    help="Settings of the model at test time, as --model-overrides of fairseq-generate: \"{'rotary_ntk_scale': 2}\".",
)
@click.option("--quantization", type=click.Choice(QUANTIZATIONS), help="Quantize the weights; by default none are.")
@click.option(
    "--sample",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Source text for the comparison with fairseq, one sentence a line; by default some of the validation set.",
)
@click.option(
    "--sentencepiece",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="SentencePiece's model, to be copied into OUTPUT; by default the recipe's. Without one, the lines of --sample "
    "are read as subwords.",
)
@click.option("--force", is_flag=True, help="Replace OUTPUT, if it is a model directory of CTranslate2.")
def main(checkpoint: Path, output: Path, quantization: str | None, **options: Any) -> None:
    """Writes CHECKPOINT, trained or averaged, as the model directory OUTPUT of CTranslate2.

    \b
    fairseq-posenc export averaged.pt served
    fairseq-posenc export averaged.pt served --quantization int8 --sample newstest.en

    OUTPUT appears only after fairseq and CTranslate2, in single precision, gave the same log-probabilities. Its
    export.json holds the options of translate_batch that search as fairseq does.
    """
    logging.disable(logging.ERROR)  # libraries log at their import; errors are raised too
    from fairseq_posenc.export import export

    verification = export(checkpoint, output, quantization=quantization, say=click.echo, **options)
    click.echo(f"{verification}\nwrote {output} ({quantization or 'float32'})")
