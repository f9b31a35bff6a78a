"""Trainings whose settings or data changed since: put aside, never deleted, and taken back when the settings are."""

import os
from pathlib import Path

from recipes.common.experiment import Experiment
from recipes.common.stages import read_json

CHECKPOINTS, KEPT = "checkpoints", (".lock", "experiment.json")  # what holds experiment.json is one to compare


def exchange(experiment: Experiment, inputs: str) -> bool:
    """Leaves in the experiment's directory what was trained from these inputs, or nothing; whether something was
    taken back.
    """
    checkpoints = experiment.directory / CHECKPOINTS
    if checkpoints.is_dir() and not _is_from(checkpoints, inputs):
        _set_aside(experiment)
    earlier = None if checkpoints.is_dir() else _find(experiment.directory, inputs)
    if earlier is None:
        return False
    _move(earlier, experiment.directory)
    earlier.rmdir()
    experiment.run.say(f"train: {experiment.title}: was trained with these settings before; taken back from {earlier}")
    return True


def _is_from(checkpoints: Path, inputs: str) -> bool:
    origin = checkpoints / "inputs.json"
    return origin.is_file() and bool(read_json(origin) == inputs)


def _all(directory: Path) -> list[Path]:
    return sorted(directory.glob("superseded-*"), key=lambda path: int(path.name.rpartition("-")[2]))


def _find(directory: Path, inputs: str) -> Path | None:
    return next((path for path in reversed(_all(directory)) if _is_from(path / CHECKPOINTS, inputs)), None)


def _set_aside(experiment: Experiment) -> None:
    """A setting that was changed by mistake must not cost what took weeks."""
    earlier = _all(experiment.directory)
    # One without checkpoints was begun by a run that was killed.
    if earlier and not (earlier[-1] / CHECKPOINTS).is_dir():
        old = earlier[-1]
    else:
        number = int(earlier[-1].name.rpartition("-")[2]) + 1 if earlier else 1
        old = experiment.directory / f"superseded-{number}"
        old.mkdir()
    _move(experiment.directory, old)
    experiment.run.say(
        f"train: {experiment.title}: its settings or data changed since it was trained; trains anew, "
        f"the earlier checkpoints are in {old}"
    )


def _move(origin: Path, target: Path) -> None:
    """The checkpoints last: until they are there, a run that was killed is known to be unfinished."""
    for path in sorted(origin.iterdir(), key=lambda path: path.name == CHECKPOINTS):
        if path.name not in KEPT and not path.name.startswith("superseded-"):
            os.replace(path, target / path.name)
