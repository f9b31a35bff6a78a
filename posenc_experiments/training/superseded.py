"""Trainings whose settings or data changed since: put aside, never deleted, and taken back when the settings are."""

import os
import re
import shutil
from pathlib import Path

from posenc_experiments.base.markers import atomic_path, read_json
from posenc_experiments.experiment.experiment import Experiment

ABOUT = "experiment.json"
KEPT = (".lock", ABOUT)  # what holds experiment.json is one to compare
ASIDE = "experiment.superseded.json"  # its copy among what was put aside
# Where things are while they are moved: a run that was killed is followed by one that moves the rest.
LEAVING, COMING = "superseding", "taking-back"


def exchange(experiment: Experiment, inputs: str) -> bool:
    """Leaves in the experiment's directory what was trained from these inputs, or nothing; whether something was
    taken back.
    """
    directory = experiment.directory
    if (directory / COMING).is_dir():
        return _take_back(experiment)
    if (directory / LEAVING).is_dir() or (_things(directory) and _inputs_of(directory) != inputs):
        _set_aside(experiment)
    if _things(directory):
        return False
    for earlier in reversed(_all(directory)):
        if _inputs_of(earlier) == inputs:
            earlier.rename(directory / COMING)
            return _take_back(experiment)
    return False


def is_in_place(experiment: Experiment) -> bool:
    """Whether all of a training lies in its directory: `compare` can find it, and no exchange was cut short."""
    directory = experiment.directory
    return (directory / ABOUT).is_file() and not (directory / LEAVING).exists() and not (directory / COMING).exists()


def _inputs_of(directory: Path) -> str | None:
    """What a training was made from, also if its checkpoints were deleted; None if there is none."""
    origin, marker = directory / "checkpoints" / "inputs.json", directory / "done" / "train.json"
    if origin.is_file():
        return str(read_json(origin))
    return str(read_json(marker)["inputs"]) if marker.is_file() else None


def _things(directory: Path) -> list[Path]:
    """What belongs to the training that lies here."""
    return [
        path
        for path in sorted(directory.iterdir())
        if path.name not in (*KEPT, LEAVING, COMING)
        and not path.name.startswith("superseded-")
        and not (path.is_dir() and not any(path.iterdir()))
    ]


def _all(directory: Path) -> list[Path]:
    """Those put aside, the latest last."""
    found = [(re.fullmatch(r"superseded-(\d+)", path.name), path) for path in directory.iterdir()]
    return [path for _, path in sorted((int(match[1]), path) for match, path in found if match)]


def _set_aside(experiment: Experiment) -> None:
    """A setting that was changed by mistake must not cost what took weeks."""
    directory, earlier = experiment.directory, _all(experiment.directory)
    (directory / LEAVING).mkdir(exist_ok=True)
    if (directory / ABOUT).is_file() and not (directory / LEAVING / ASIDE).is_file():
        with atomic_path(directory / LEAVING / ASIDE) as temporary:
            shutil.copyfile(directory / ABOUT, temporary)
    for path in _things(directory):
        os.replace(path, directory / LEAVING / path.name)
    number = int(earlier[-1].name.rpartition("-")[2]) + 1 if earlier else 1
    old = (directory / LEAVING).rename(directory / f"superseded-{number}")
    experiment.run.say(
        f"train: {experiment.title}: its settings or data changed since it was trained; trains again, "
        f"the earlier checkpoints are in {old}"
    )


def _take_back(experiment: Experiment) -> bool:
    for path in sorted((experiment.directory / COMING).iterdir()):
        os.replace(path, experiment.directory / (ABOUT if path.name == ASIDE else path.name))
    (experiment.directory / COMING).rmdir()
    experiment.run.say(f"train: {experiment.title}: was trained with these settings before; that is taken back")
    return True
