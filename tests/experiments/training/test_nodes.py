"""Trainings in several processes and on several nodes: the same experiment as in one process."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_posenc.checkpoints import load_checkpoint
from posenc_experiments.experiment.experiment import Experiment
from tests import forked
from tests.experiments import tiny
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


def setting(root: Path) -> Path:
    """The directory of shaw-k2 within --output-dir."""
    run = tiny.make_run(root, root / "recipe" / "tiny.yaml", None)
    return Experiment(run, "shaw-k2", 1).directory.relative_to(run.output_dir)


# Dropout would differ between processes.
CONF = tiny.CONF.replace("max-tokens: 200", "max-tokens: 100").replace("\ntrain:", "\n  dropout: 0\ntrain:")


def free_port() -> int:
    """A free port below those that Linux gives to whoever asks for any, so that it stays free."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def command(conf: Path, root: Path, output: str, *options: str) -> list[str]:
    words = ["--conf", conf, "--source", root / "corpus", "--stages", "download..train"]
    return tiny.command("run", *words, *tiny.directories(root, root / output), *options)


def start(*arguments: Any) -> subprocess.Popen[str]:
    words = command(*arguments)
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")


def finish(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return said


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe trained by one process."""
    root = tmp_path_factory.mktemp("nodes")
    conf, _ = tiny.make_recipe(root, CONF, lines=300)
    run = forked.run_command(command(conf, root, "one"))
    assert run.returncode == 0, run.stdout + run.stderr
    return root


def require_equal_trainings(root: Path, output: str) -> None:
    one, other = (root / name / setting(root) for name in ("one", output))
    losses = [json.loads((path / "training.json").read_text())["valid_loss"] for path in (one, other)]
    assert losses[0] == losses[1]  # printed with three decimals
    ours, theirs = (load_checkpoint(path / "checkpoints" / "checkpoint_last.pt")["model"] for path in (one, other))
    for name, tensor in ours.items():
        # A bias of keys adds the same to all logits of a query: its gradient is noise, which Adam enlarges.
        if not name.endswith("k_proj.bias"):
            torch.testing.assert_close(theirs[name], tensor, atol=1e-4, rtol=1e-3, msg=name)


def test_two_processes_train_the_same_model(root: Path) -> None:
    run = forked.run_command(command(root / "recipe" / "tiny.yaml", root, "two", "--processes", "2"))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "--update-freq 4" in (root / "one" / setting(root) / "command.sh").read_text()
    assert "--update-freq 2" in (root / "two" / setting(root) / "command.sh").read_text()
    require_equal_trainings(root, "two")


def trainings_in(directory: Path) -> list[int]:
    """The processes that train in a directory."""
    found, name = [], str(directory / setting(directory.parent)).encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if name in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def test_a_kill_ends_all_processes_and_the_training_resumes(root: Path) -> None:
    conf, directory = root / "recipe" / "tiny.yaml", root / "killed" / setting(root)
    process = start(conf, root, "killed", "--processes", "2")
    wait_until((directory / "checkpoints" / "checkpoint1.pt").exists, process)
    trainings = trainings_in(root / "killed")
    assert len(trainings) == 3  # torchrun's too
    for training in trainings:
        os.kill(training, signal.SIGSTOP)  # so that they do not end by themselves
    process.kill()
    process.communicate()
    try:
        wait_until(lambda: not trainings_in(root / "killed"))
    finally:
        for training in trainings_in(root / "killed"):
            os.kill(training, signal.SIGKILL)
    assert not (directory / "done.json").exists()
    assert "resumes from its last checkpoint" in finish(start(conf, root, "killed", "--processes", "2"))
    require_equal_trainings(root, "killed")


def test_two_nodes_train_the_same_model(root: Path) -> None:
    conf = root / "recipe" / "tiny.yaml"
    meet = ["--nodes", "2", "--rendezvous", f"127.0.0.1:{free_port()}"]
    # An announcement of a killed run must not be joined.
    stale = root / "nodes" / setting(root) / "nodes.json"
    stale.parent.mkdir(parents=True)
    stale.write_text('{"attempt": "old", "launch": "another job"}')
    second = start(conf, root, "nodes", *meet, "--node-rank", "1")
    first = start(conf, root, "nodes", *meet)
    finish(first)
    said = finish(second)
    assert "waits for node 0" in said
    assert "joins" in said
    assert not (root / "nodes" / setting(root) / "nodes.json").exists()
    require_equal_trainings(root, "nodes")
    assert said.count("joins") == 1
    # Started again, neither node trains; without the stage train, none waits for it.
    again = [start(conf, root, "nodes", *meet, "--node-rank", rank) for rank in ("0", "1")]
    finish(start(conf, root, "none", *meet, "--node-rank", "1", "--stages", "download,prepare"))
    assert ["joins" in finish(process) for process in again] == [False, False]
