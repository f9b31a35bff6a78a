"""Keeps trainings whose settings or data changed.

They are moved aside, never deleted, and restored when the experiment has their settings and data again.
"""

import os
import re
import shutil
from pathlib import Path

from posenc_experiments.base.markers import atomic_path, read_json
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.layout import ExperimentDirectory

# The name of the copy of Layout.about among the files that are moved aside. It must differ, because `compare` takes
# every directory with an experiment.json for an experiment.
ABOUT_COPY = "experiment.superseded.json"


def exchange(experiment: Experiment, inputs: str) -> bool:
    """Moves a training with other inputs aside, and restores an earlier one with these inputs, if there is one.

    Returns:
        Whether a training was restored.
    """
    directory = experiment.directory
    restored = experiment.returning.is_dir() and _restore(experiment)  # with the inputs of a run that was killed
    if experiment.leaving.is_dir() or (_training_files(experiment) and _inputs_of(directory) != inputs):
        _move_aside(experiment)
    elif _training_files(experiment):
        return restored
    for earlier in reversed(_superseded(directory)):
        if _inputs_of(earlier) == inputs:
            earlier.rename(experiment.returning)
            return _restore(experiment)
    return False


def _inputs_of(directory: Path) -> str | None:
    """The fingerprint of a training's inputs, also if its checkpoints were deleted; None if it was not recorded."""
    files = ExperimentDirectory(directory)
    marker = files.markers.path("train")
    if files.checkpoints_inputs.is_file():
        return str(read_json(files.checkpoints_inputs))
    recorded = read_json(marker) if marker.is_file() else None
    return str(recorded["inputs"]) if isinstance(recorded, dict) and "inputs" in recorded else None


def _training_files(experiment: Experiment) -> list[Path]:
    """The files and directories of the current training that are moved; Layout.about is copied instead."""
    names = [path.name for path in (experiment.about, experiment.leaving, experiment.returning)]
    return [
        path
        for path in sorted(experiment.directory.iterdir())
        if path.name not in (".lock", *names)
        and not path.name.startswith("superseded-")
        and not (path.is_dir() and not any(path.iterdir()))
    ]


def _superseded(directory: Path) -> list[Path]:
    """The directories of trainings that were moved aside, oldest first."""
    found = [(re.fullmatch(r"superseded-(\d+)", path.name), path) for path in directory.iterdir()]
    return [path for _, path in sorted((int(match[1]), path) for match, path in found if match)]


def _move_aside(experiment: Experiment) -> None:
    """Moves the current training to superseded-N, so that a setting changed by mistake does not cost weeks of work."""
    directory, earlier = experiment.directory, _superseded(experiment.directory)
    leaving = experiment.leaving
    leaving.mkdir(exist_ok=True)
    if experiment.about.is_file() and not (leaving / ABOUT_COPY).is_file():
        with atomic_path(leaving / ABOUT_COPY) as temporary:
            shutil.copyfile(experiment.about, temporary)
    for path in _training_files(experiment):
        os.replace(path, leaving / path.name)
    number = int(earlier[-1].name.rpartition("-")[2]) + 1 if earlier else 1
    old = leaving.rename(directory / f"superseded-{number}")
    experiment.run.say(
        f"train: {experiment.title}: its settings or data changed since it was trained; trains again, "
        f"the earlier checkpoints are in {old}"
    )


def _restore(experiment: Experiment) -> bool:
    returning = experiment.returning
    for path in sorted(returning.iterdir()):
        os.replace(path, experiment.about if path.name == ABOUT_COPY else experiment.directory / path.name)
    returning.rmdir()
    experiment.run.say(f"train: {experiment.title}: was trained with these settings before; restored that training")
    return True
