"""`fairseq-posenc keep-results`: packs the results of experiments that fit under version control.

These are settings, commands, translations, scores and analyses, but not checkpoints, logs and references.
"""

import shlex
from pathlib import Path

import click

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import require_directory
from posenc_experiments.evaluation.kept import SUFFIX, pack, require_same
from posenc_experiments.evaluation.results import read_results
from posenc_experiments.experiment import layout
from posenc_experiments.experiment.layout import ExperimentDirectory

KEPT = (layout.HYPOTHESES, layout.SACREBLEU, layout.HISTORICAL, layout.SENTENCES)  # of each test set


@click.command()
@click.argument("output", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("results", type=click.Path(path_type=Path))
def main(output: Path, results: Path) -> None:
    """Packs the results of every scored experiment in OUTPUT into archives at the same path in RESULTS.

    There is one archive for each experiment, with a directory for each seed; seeds that it has already stay, and other
    results of these seeds are refused. Results are settings, translations, scores and analyses. OUTPUT is a recipe's
    --output-dir. In the command of the training, paths become those of a run from the repository with the default
    directories.
    """
    require_directory(results, "RESULTS")
    output, target = output.resolve(), results.resolve()
    experiments = sorted(layout.find_experiments(output))
    finished = [one for one in experiments if ExperimentDirectory(one).test_files([layout.SACREBLEU])]
    if not finished or any(output in (one, one.parent) for one in finished):
        raise RecipeError(f"{output} holds no scored experiment: name a recipe's --output-dir.")
    if output.is_relative_to(target) or target.is_relative_to(output):
        raise RecipeError(f"one of {results} and {output} contains the other: name another directory for the results.")
    read_results(finished)  # refuses damaged files
    archives: dict[Path, dict[str, bytes]] = {}
    for experiment in finished:
        files, place = ExperimentDirectory(experiment), experiment.parent.relative_to(output)
        kept = archives.setdefault(results / f"{place}{SUFFIX}", {})
        for file in (files.about, files.summary, files.analysis, *files.test_files(KEPT)):
            if file.is_file():
                kept[f"{experiment.name}/{file.name}"] = file.read_bytes()
        kept[f"{experiment.name}/{files.command.name}"] = _command(experiment, output).encode()
    for archive, kept in archives.items():
        require_same(archive, kept)
    for archive, kept in archives.items():
        pack(archive, kept)
    click.echo(f"{len(finished)} experiments kept in {results}")


def _command(experiment: Path, output: Path) -> str:
    """The command of an experiment's training with the paths of a run from the repository."""
    *lines, command = ExperimentDirectory(experiment).command.read_text(encoding="utf-8").splitlines()
    words = shlex.split(command)
    checkpoints = Path(words[words.index("--save-dir") + 1])
    root = checkpoints.parents[len(experiment.relative_to(output).parts)]  # the output directory, as the user named it
    return "\n".join([*lines, shlex.join(_portable(word, root) for word in words)]) + "\n"


def _portable(word: str, output: Path) -> str:
    path = Path(word)
    if not path.is_absolute():
        return word
    if path.is_relative_to(output):
        return str("output" / path.relative_to(output))
    return str(Path("data", *path.parts[-4:])) if path.name == "binarized" else path.name
