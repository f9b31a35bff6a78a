"""Training on several nodes that share a file system: node 0 runs the pipeline, the others join its trainings.

Node 0 says in `nodes.json` that it starts a training; whoever sees it starts the same command with a rank of its own.
torchrun alone would not do: its nodes wait minutes for each other, while node 0 may prepare, translate and score for
hours.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from recipes.common.experiment import Experiment, train_command, train_environment
from recipes.common.run import POLL_SECONDS, run_command
from recipes.common.stages import read_json, write_json


@contextmanager
def announced(experiment: Experiment) -> Iterator[None]:
    """On node 0: tells the others to join, for as long as the training runs."""
    path = experiment.directory / "nodes.json"
    if experiment.run.nodes > 1:
        write_json(path, {"attempt": uuid.uuid4().hex, "rendezvous": experiment.run.rendezvous})
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def join(experiment: Experiment, which: str) -> None:
    """On the other nodes: takes part in a training until node 0 says that it is done; RecipeError if it fails here."""
    run, path = experiment.run, experiment.directory / "nodes.json"
    title = f"train {which}: {experiment.title}, node {run.node_rank}"
    log = experiment.directory / f"train.node{run.node_rank}.log"
    joined = None
    run.say(f"{title}: waits for node 0")
    while not experiment.markers.is_done("train", experiment.train_inputs()):
        attempt = read_json(path)["attempt"] if path.exists() else None
        if attempt is None or attempt == joined:
            time.sleep(POLL_SECONDS)
            continue
        joined = attempt
        run.say(f"{title}: joins, log {log}")
        run_command(run, train_command(experiment), log, title, train_environment(run))
    run.say(f"{title}: done")
