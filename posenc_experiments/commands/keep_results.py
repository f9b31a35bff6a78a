"""Copies the text that experiments leave (settings, commands, translations, scores) to where it is kept under version
control, without checkpoints, logs and references.
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
    """Copies every scored experiment below OUTPUT, a recipe's --output-dir, to the same place below RESULTS.

    In the training's command, paths become those of a run with the default directories, started in the repository.
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
    """The command with paths as in a run with the default directories, started in the repository."""
    command = command.replace(f"{output}/", "output/")
    command = re.sub(r"\S+/(?=\w+/\S+/prepared/binarized)", "data/", command)
    command = re.sub(r"(--user-dir) \S+/(?=fairseq_posenc\b)", r"\1 ", command)
    return re.sub(r"\S+/bin/python\S*", "python", command)
