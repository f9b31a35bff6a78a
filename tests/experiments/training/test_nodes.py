"""Trainings in several processes and on several nodes: the same experiment as in one process."""

import contextlib
import os
import random
import signal
import socket
import subprocess
from pathlib import Path

import pytest
import torch

from fairseq_posenc.checkpoints import load_checkpoint
from posenc_experiments.base.files import read_json
from tests.experiments import tiny
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


def directory_in(root: Path, output: str) -> Path:
    """The directory of shaw-k2 in an --output-dir."""
    return tiny.make_experiment(root, output_dir=root / output).directory


# Dropout would differ between processes.
CONF = tiny.CONF.replace("max-tokens: 200", "max-tokens: 100").replace("\ntrain:", "\n  dropout: 0\ntrain:")


def free_port() -> int:
    """A free port below those that Linux gives to whoever asks for any, so that it stays free."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def start(root: Path, output: str, *options: str) -> subprocess.Popen[str]:
    given = ["--output-dir", root / output, "--source", root / "corpus", "--stages", "download..train", *options]
    command = tiny.recipe_command(root, *given)
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")


def finish(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return said


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe trained by one process."""
    root = tmp_path_factory.mktemp("nodes")
    tiny.make_recipe(root, CONF, lines=300)
    finish(start(root, "one"))
    return root


def require_equal_trainings(root: Path, output: str) -> None:
    directories = [directory_in(root, name) for name in ("one", output)]
    losses = [read_json(directory / "training.json")["valid_loss"] for directory in directories]
    assert losses[0] == losses[1]  # printed with three decimals
    ours, theirs = (load_checkpoint(path / "checkpoints" / "checkpoint_last.pt")["model"] for path in directories)
    for name, tensor in ours.items():
        # A bias of keys adds the same to all logits of a query: its gradient is noise, which Adam enlarges.
        if not name.endswith("k_proj.bias"):
            torch.testing.assert_close(theirs[name], tensor, atol=1e-4, rtol=1e-3, msg=name)


def test_two_processes_train_the_same_model(root: Path) -> None:
    finish(start(root, "two", "--processes", "2"))
    assert "--update-freq 4" in (directory_in(root, "one") / "command.sh").read_text()
    assert "--update-freq 2" in (directory_in(root, "two") / "command.sh").read_text()
    require_equal_trainings(root, "two")


def trainings_in(directory: Path) -> list[int]:
    """The processes that train in a directory."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(directory).encode() in path.read_bytes():
                processes.append(int(path.parent.name))
    return processes


def test_a_kill_ends_all_processes_and_the_training_resumes(root: Path) -> None:
    directory = directory_in(root, "killed")
    process = start(root, "killed", "--processes", "2")
    wait_until((directory / "checkpoints" / "checkpoint1.pt").exists, process)
    trainings = trainings_in(directory)
    assert len(trainings) == 3  # torchrun's too
    for training in trainings:
        os.kill(training, signal.SIGSTOP)  # so that they do not end by themselves
    process.kill()
    process.communicate()
    try:
        wait_until(lambda: not trainings_in(directory))
    finally:
        for training in trainings_in(directory):
            os.kill(training, signal.SIGKILL)
    assert not (directory / "done.json").exists()
    assert "resumes from its last checkpoint" in finish(start(root, "killed", "--processes", "2"))
    require_equal_trainings(root, "killed")


def test_two_nodes_train_the_same_model(root: Path) -> None:
    meet = ["--nodes", "2", "--rendezvous", f"127.0.0.1:{free_port()}"]
    # An announcement of a killed run must not be joined.
    stale = directory_in(root, "nodes") / "nodes.json"
    stale.parent.mkdir(parents=True)
    stale.write_text('{"attempt": "old", "launch": "another job"}')
    second = start(root, "nodes", *meet, "--node-rank", "1")
    first = start(root, "nodes", *meet)
    finish(first)
    said = finish(second)
    assert "waits for node 0" in said
    assert not stale.exists()
    require_equal_trainings(root, "nodes")
    assert said.count("joins") == 1
    # Started again, neither node trains; without the stage train, none waits for it.
    again = [start(root, "nodes", *meet, "--node-rank", rank) for rank in ("0", "1")]
    finish(start(root, "none", *meet, "--node-rank", "1", "--stages", "download,prepare"))
    assert ["joins" in finish(process) for process in again] == [False, False]
