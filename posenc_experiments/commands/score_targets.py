"""`fairseq-posenc score-targets`: log-probabilities of given targets under a model."""

import logging
from pathlib import Path

import click

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import require_output, write_text
from posenc_experiments.commands.model_options import cpu_option, data_option


@click.command()
@click.argument("model", type=click.Path(path_type=Path, exists=True))
@click.argument("pairs", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@data_option
@cpu_option
@click.option("--output", type=click.Path(path_type=Path), help="Write the table there.  [default: print it]")
def main(model: Path, pairs: Path, binarized: Path | None, cpu: bool, output: Path | None) -> None:
    """Scores given targets: the log-probability of each, and of each of its tokens, given the source.

    \b
    fairseq-posenc score-targets output/quickstart/xa-xb/sinusoidal-*/seed1 pairs.tsv
    fairseq-posenc score-targets model.pt pairs.tsv --data data-bin --output scores.tsv

    MODEL is an experiment directory or a checkpoint of the plugin. A line of PAIRS is a source, a tab and a target;
    tabs separate more targets of that source (`paste source.txt target.txt` makes such a file). The text is split into
    subwords as the experiment's was; for data that this project did not prepare, it must be in the model's tokens.

    The table has a row for each target: its line and number, the sum of log-probabilities in nats, the number of
    tokens with </s>, these tokens, and the log-probability of each.
    """
    if output is not None:
        require_output(output, "scores.tsv")
        if output.exists() and output.samefile(pairs):
            raise RecipeError(f"--output {output} is the file of the pairs: name another.")
    logging.disable(logging.WARNING)  # libraries log at their import
    from posenc_experiments.analysis.targets import find_models, read_pairs, score_targets

    models = find_models([model], binarized)
    if len(models) > 1:
        raise RecipeError(f"{model} holds {len(models)} experiments: name one of them (seedN).")
    wanted = read_pairs(pairs)

    def say(words: str) -> None:
        click.echo(f"score-targets: {words}", err=True)

    scores = score_targets(models[0], wanted, say, cpu)
    lines = ["line\ttarget\tlog_probability\tlength\ttokens\ttoken_log_probabilities"]
    for pair, (tokens, values) in zip(wanted, scores, strict=True):
        scored = " ".join(f"{value:.6f}" for value in values)
        lines.append(f"{pair.line}\t{pair.number}\t{values.sum():.6f}\t{len(tokens)}\t{' '.join(tokens)}\t{scored}")
    table = "".join(f"{line}\n" for line in lines)
    if output is None:
        click.echo(table, nl=False)
        return
    write_text(output, table)
    say(f"{output} ({len(scores):,} targets)")
