"""`fairseq-posenc keep-results`: copies the results of experiments that fit under version control.

These are settings, commands, translations and scores, but not checkpoints, logs and references.
"""

import re
import shutil
from pathlib import Path

import click

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.experiment.layout import HISTORICAL, HYPOTHESES, SACREBLEU, ExperimentDirectory

KEPT = (HYPOTHESES, SACREBLEU, HISTORICAL)  # of each test set


@click.command()
@click.argument("output", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("results", type=click.Path(path_type=Path, file_okay=False))
def main(output: Path, results: Path) -> None:
    """Copies settings, translations and scores of every scored experiment in OUTPUT to the same path in RESULTS.

    OUTPUT is a recipe's --output-dir. In the command of the training, paths become those of a run from the repository
    with the default directories.
    """
    output = output.resolve()
    finished = sorted(marker.parents[1] for marker in output.rglob("done/score*"))
    if not finished:
        raise RecipeError(f"{output} holds no scored experiment: name a recipe's --output-dir.")
    for experiment in finished:
        kept = results / experiment.relative_to(output)
        if kept.exists():
            shutil.rmtree(kept)
        kept.mkdir(parents=True)
        files = ExperimentDirectory(experiment)
        for file in (files.about, files.summary, *files.test_files(KEPT)):
            if file.is_file():
                shutil.copyfile(file, kept / file.name)
        (kept / files.command.name).write_text(_portable(files.command.read_text(encoding="utf-8"), output))
    click.echo(f"{len(finished)} experiments kept in {results}")


def _portable(command: str, output: Path) -> str:
    """The command with the paths of a run from the repository with the default directories."""
    command = command.replace(f"{output}/", "output/")
    command = re.sub(r"\S+/(?=\w+/\S+/prepared/binarized)", "data/", command)
    command = re.sub(r"(--user-dir) \S+/(?=fairseq_posenc\b)", r"\1 ", command)
    return re.sub(r"\S+/bin/python\S*", "python", command)
