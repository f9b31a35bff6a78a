"""`fairseq-posenc contrast`: accuracy on contrastive pairs."""

import logging
from pathlib import Path

import click

from posenc_experiments.commands.model_options import cpu_option, data_option
from posenc_experiments.evaluation.tables.report import FORMATS


@click.command()
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option(
    "--source",
    "contrastive_set",
    required=True,
    metavar="SET",
    type=click.Path(path_type=Path, exists=True),
    help="The contrastive set: a table (.tsv), the .json of LingEval97 or ContraPro, or a directory of DistilLingEval.",
)
@click.option(
    "--context",
    nargs=2,
    metavar="SOURCE TARGET",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Files with the sentences before each target, as ContraPro's script writes them.",
)
@data_option
@cpu_option
@click.option("--normalize", is_flag=True, help="Compare log-probabilities divided by the number of tokens.")
@click.option("--format", "style", type=click.Choice(FORMATS), default="text")
def main(
    models: tuple[Path, ...],
    contrastive_set: Path,
    context: tuple[Path, Path] | None,
    binarized: Path | None,
    cpu: bool,
    normalize: bool,
    style: str,
) -> None:
    """Prints how often models give the correct target of a pair a higher probability than the one with an error.

    \b
    fairseq-posenc contrast output/quickstart/xa-xb --source contrast.tsv
    fairseq-posenc contrast output/wmt14/en-de --source lingeval97.json --format markdown
    fairseq-posenc contrast model.pt --data data-bin --source distil-lingeval/data/np_agreement.mt
    fairseq-posenc contrast output/films --source contrapro.json --context contrapro.context.en contrapro.context.de

    MODELS are experiment directories (seedN), directories that hold experiments, or checkpoints of the plugin: a column
    each. Rows are phenomena, with the distance between the words that the error concerns where the set has it.
    docs/analysis.md has the formats.
    """
    logging.disable(logging.WARNING)  # libraries log at their import
    from posenc_experiments.analysis.contrast import preferences, report
    from posenc_experiments.analysis.contrastive_sets import read_set
    from posenc_experiments.analysis.targets import find_models

    contrasts = read_set(contrastive_set, context or ())
    loaded = find_models(models, binarized)

    def say(words: str) -> None:
        click.echo(f"contrast: {words}", err=True)

    results = [preferences(model, contrasts, normalize, say, cpu) for model in loaded]
    names = [model.name for model in loaded]
    click.echo(report(contrastive_set.name, names, contrasts, results, normalize).format(style), nl=False)
