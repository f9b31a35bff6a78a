"""Training on several nodes that share a file system: node 0 runs the pipeline, the others join its trainings.

Node 0 announces in a file (`Experiment.nodes`) that it starts a training. The other nodes poll this file and start the
same command, each with its own rank. torchrun alone is not enough: its nodes give up after minutes, while node 0 may
prepare, translate and score for hours.
"""

import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from posenc_experiments.base.files import write_json
from posenc_experiments.base.subprocesses import POLL_SECONDS, run_command
from posenc_experiments.experiment.command_lines import train_command, train_environment
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.stage import Stage


def _launch() -> str:
    """An identifier that all nodes of one start of a SLURM job share; empty for nodes started by hand.

    With it, a requeued job does not join a training that its earlier start announced.
    """
    return os.environ.get("POSENC_LAUNCH", "")


@contextmanager
def announced(experiment: Experiment) -> Iterator[None]:
    """On node 0: announces a training to the other nodes while it runs."""
    if experiment.run.hardware.nodes == 1:
        yield
        return
    write_json(experiment.nodes, {"attempt": uuid.uuid4().hex, "launch": _launch()})
    try:
        yield
    finally:
        experiment.nodes.unlink(missing_ok=True)


def _attempt(experiment: Experiment) -> str | None:
    """The identifier of the training that node 0 runs now, if any."""
    try:
        announcement = json.loads(experiment.nodes.read_text(encoding="utf-8"))
        return str(announcement["attempt"]) if announcement["launch"] == _launch() else None
    except (OSError, ValueError, KeyError):  # missing, or being replaced on a network file system
        return None


def join(stage: Stage, experiment: Experiment) -> None:
    """On the other nodes: takes part in a training until node 0 has finished it; RecipeError if this node fails."""
    run = experiment.run
    title = f"train: {experiment.title}, node {run.hardware.node_rank}"
    log = experiment.node_log(run.hardware.node_rank)
    joined = None
    run.say(f"{title}: waits for node 0")
    while not stage.is_done(experiment):
        attempt = _attempt(experiment)
        if attempt is None or attempt == joined:
            time.sleep(POLL_SECONDS)
            continue
        run.say(f"{title}: joins, log {log}")
        run_command(run, train_command(experiment), log, title, train_environment(run))
        # Processes meet by address only, so these may have joined a later attempt than `attempt`: the one that is
        # announced at their end. Do not join it again.
        joined = _attempt(experiment) or attempt
    run.say(f"{title}: done")
