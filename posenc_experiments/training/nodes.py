"""Training on several nodes that share a file system: node 0 runs the pipeline, the others join its trainings.

Node 0 says in `nodes.json` that it starts a training; whoever sees it starts the same command with a rank of its own.
torchrun alone would not do: its nodes wait minutes for each other, while node 0 may prepare, translate and score for
hours.
"""

import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from posenc_experiments.base.markers import write_json
from posenc_experiments.base.run import POLL_SECONDS, run_command
from posenc_experiments.experiment.command_lines import train_command, train_environment
from posenc_experiments.experiment.experiment import Experiment


def _path(experiment: Experiment) -> Path:
    return experiment.directory / "nodes.json"


def _launch() -> str:
    """What all nodes of one start of a SLURM job have in common, for a requeued job must not meet its former self; of
    nodes that were started by hand it is nothing.
    """
    return os.environ.get("POSENC_LAUNCH", "")


def forget_attempts(experiments: Iterable[Experiment]) -> None:
    """On node 0, first of all: a run that was killed may have left its word behind."""
    for experiment in experiments:
        _path(experiment).unlink(missing_ok=True)


@contextmanager
def announced(experiment: Experiment) -> Iterator[None]:
    """On node 0: tells the others to join, for as long as the training runs."""
    if experiment.run.nodes == 1:
        yield
        return
    write_json(_path(experiment), {"attempt": uuid.uuid4().hex, "launch": _launch()})
    try:
        yield
    finally:
        _path(experiment).unlink(missing_ok=True)


def _attempt(experiment: Experiment) -> str | None:
    """The training that node 0 runs now, if any."""
    try:
        said = json.loads(_path(experiment).read_text(encoding="utf-8"))
        return str(said["attempt"]) if said["launch"] == _launch() else None
    except (OSError, ValueError, KeyError):  # not there, or just being replaced on a file system far away
        return None


def join(experiment: Experiment, which: str) -> None:
    """On the other nodes: takes part in a training until node 0 says that it is done; RecipeError if it fails here."""
    run = experiment.run
    title = f"train {which}: {experiment.title}, node {run.node_rank}"
    log = experiment.directory / f"train.node{run.node_rank}.log"
    joined = None
    run.say(f"{title}: waits for node 0")
    while not experiment.markers.is_done("train", experiment.train_inputs()):
        attempt = _attempt(experiment)
        if attempt is None or attempt == joined:
            time.sleep(POLL_SECONDS)
            continue
        run.say(f"{title}: joins, log {log}")
        run_command(run, train_command(experiment), log, title, train_environment(run))
        # Whatever was announced meanwhile is what just ended: processes meet by address.
        joined = _attempt(experiment) or attempt
    run.say(f"{title}: done")
