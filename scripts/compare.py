"""Compares experiments: a table of their scores, with significance against a baseline, and a plot over
clipping distances.
"""

import logging
import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this copy of the code, whichever is installed


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.argument("directories", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--format", "style", type=click.Choice(["text", "markdown", "csv"]), default="text", show_default=True)
@click.option("--baseline", help="An experiment's name: adds p-values against it, by SacreBLEU's paired bootstrap.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    help="Draws BLEU against clipping distance into this file (.png, .pdf, .svg).",
)
def main(directories: tuple[Path, ...], style: str, baseline: str | None, plot: Path | None) -> None:
    """DIRECTORIES are experiment directories, or directories that hold them at any depth. Seeds of one
    setting are pooled.
    """
    # Warnings only: importing fairseq sets the root logger to DEBUG, and every library would talk.
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    logging.basicConfig(handlers=[handler])
    from fairseq_posenc import results

    formats = {"text": results.as_text, "markdown": results.as_markdown, "csv": results.as_csv}
    try:
        rows = results.pool(results.read_experiments(directories), baseline)
        click.echo(formats[style](rows), nl=False)
        if plot is not None:
            click.echo(f"Plot: {results.plot(rows, plot)}", err=True)
    except results.ResultsError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
