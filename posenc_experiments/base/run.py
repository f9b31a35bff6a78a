"""The settings of one call of the pipeline, its hardware, the paths of its data, and how it runs commands."""

import ctypes
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from posenc_experiments.base import languages
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.flags import Flags
from posenc_experiments.base.markers import atomic_path
from posenc_experiments.base.recipe import Recipe

ROOT = Path(__file__).resolve().parents[2]
POLL_SECONDS = 0.3
FULL_DISK = 1 << 20  # bytes that are free
# Looked up at import, because a process with threads must not load anything between fork and exec. Only Linux has
# prctl; elsewhere a command may outlive a killed pipeline and hold its lock, and the next call is refused.
PRCTL = getattr(ctypes.CDLL(None), "prctl", None)
STAGES = ("download", "prepare", "train", "average", "translate", "score", "compare")


@dataclass(frozen=True)
class Hardware:
    """What the jobs of one call run on: this machine, nodes that train together, or SLURM's queue."""

    gpus: int = 0  # of one training, on each node; 0: on the CPU
    cpu_processes: int = 1  # training processes of each node without GPUs
    cpus: int = 1  # of this machine, or of one SLURM job
    #: one job runs in each at a time: its GPUs as CUDA_VISIBLE_DEVICES names them, or a number; with SLURM, none mean
    #: any number of jobs
    slots: tuple[str, ...] = ("0",)
    nodes: int = 1
    node_rank: int = 0
    rendezvous: str = ""  # host:port of node 0, if there are several nodes
    slurm: dict[str, Any] | None = None  # parameters of --slurm; None without SLURM

    @property
    def processes(self) -> int:
        """Training processes on this node: one for each GPU, or `cpu_processes` without GPUs."""
        return self.gpus or self.cpu_processes

    @property
    def workers(self) -> int:
        """Training processes on all nodes."""
        return self.nodes * self.processes

    @property
    def jobs(self) -> int:
        """The number of jobs that share this machine or SLURM's reservation."""
        return 1 if self.slurm is not None else len(self.slots)

    @property
    def job_cpus(self) -> int:
        """CPU threads of one process of one job."""
        return max(1, self.cpus // (self.jobs * (1 if self.gpus else self.processes)))


@dataclass(frozen=True)
class Session:
    """What jobs of one call share in this process, and the GPUs of the job at hand."""

    console: Console = field(default_factory=Console)
    stop: threading.Event = field(default_factory=threading.Event)  # set on an interrupt, to end all commands
    devices: str | None = None  # the GPUs of this job, as CUDA_VISIBLE_DEVICES names them; None: all


@dataclass(frozen=True)
class Run:
    """The settings of one call for one recipe and pair; every stage takes a Run."""

    recipe: Recipe
    pair: str
    data_dir: Path
    output_dir: Path
    source_dir: Path | None = None
    overrides: tuple[str, ...] = ()  # --set, as given
    extra: Flags = field(default_factory=dict)  # flags of fairseq-train, given after `--`
    precision: str | None = None  # None: what the recipe says
    tensorboard: bool = False
    wandb: str | None = None  # a project's name
    dry_run: bool = False
    hardware: Hardware = Hardware()
    session: Session = field(default_factory=Session)

    @property
    def source(self) -> str:
        return self.pair.split("-")[0]

    @property
    def target(self) -> str:
        return self.pair.split("-")[1]

    @property
    def tokenizer(self) -> str:
        """SacreBLEU's tokenizer of BLEU."""
        return self.recipe.score.tokenize or languages.default_tokenizer(self.target)

    def module(self, name: str) -> list[str]:
        """The command that runs a Python module, without searching for it in the current directory."""
        return [sys.executable, "-P", "-m", name]

    @property
    def pair_dir(self) -> Path:
        """The prepared data of the pair, a directory for each of its settings."""
        return self.data_dir / self.recipe.corpus.name / self.pair

    @property
    def results_dir(self) -> Path:
        """The results of all pairs of the corpus."""
        return self.output_dir / self.recipe.corpus.name

    @property
    def pair_results_dir(self) -> Path:
        return self.results_dir / self.pair

    @property
    def jobs_dir(self) -> Path:
        """Locks, logs and states of jobs that run in other processes."""
        return self.results_dir / "jobs"

    def say(self, text: str) -> None:
        """Prints one line to the user, without markup."""
        self.session.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def dry(self, words: Iterable[str | Path]) -> None:
        """Prints a command that --dry-run does not run."""
        self.say(shlex.join(str(word) for word in words))


def die_with_parent() -> None:
    """Has this child process killed when its parent is, so that a killed call leaves no command running."""
    if PRCTL is not None:
        PRCTL(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Stopped(Exception):
    """Raised in all jobs when the user interrupts the call."""


def run_command(
    run: Run,
    words: Iterable[str | Path],
    log: Path,
    what: str,
    environment: Mapping[str, str] | None = None,
    locks: Collection[int] = (),
    while_running: Callable[[], None] | None = None,
) -> None:
    """Runs a command and appends its output to `log`.

    Args:
        what: name of the command in errors.
        environment: variables to set beside those of this process.
        locks: descriptors of locks that the command inherits, so that it holds them even if this process is killed.
        while_running: called a few times a second.

    Raises:
        RecipeError: the command failed; names `what`, the last error in the log, and the log.
        Stopped: the user interrupted the call.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    devices = run.session.devices
    visible = {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
    with open(log, "ab") as file:
        began = file.tell()
        process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **visible, **(environment or {})},
            preexec_fn=die_with_parent,
            pass_fds=tuple(locks),
        )
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
                if run.session.stop.is_set():
                    raise Stopped
                if while_running is not None:
                    while_running()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if code := process.returncode:
        reason = f"exit status {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
        is_full = shutil.disk_usage(log.parent).free < FULL_DISK  # then the log may end before the error
        full = f"; the disk of {log.parent} is full" if is_full else ""
        raise RecipeError(f"{what} failed ({reason}): {last_words(log, began)}{full}; the whole log is {log}.")


def write_command(path: Path, words: Iterable[str | Path], environment: Mapping[str, str]) -> None:
    """Writes a script that runs a command again."""
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())
    command = shlex.join(str(word) for word in words)
    with atomic_path(path) as temporary:
        temporary.write_text(f"#!/usr/bin/env bash\nset -euo pipefail\n{exports}exec {command}\n", encoding="utf-8")
        temporary.chmod(0o755)


def time_left(seconds: float) -> str:
    """The end of a line about running work: `, about 5 min left`."""
    minutes = seconds / 60
    return f", about {max(1, minutes):.0f} min left" if minutes < 120 else f", about {minutes / 60:.0f} h left"


def last_words(log: Path, begin: int = 0) -> str:
    """The last line of a log after its first `begin` bytes that names an error, or the last line if none does."""
    with open(log, "rb") as file:
        file.seek(max(begin, file.seek(0, os.SEEK_END) - 100_000))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").split("\n") if line.strip()]
    errors = [line for line in lines if "Error" in line or "error:" in line]
    said = (errors or lines or ["it printed nothing"])[-1]
    return re.sub("^(error|Error): ", "", said).removesuffix(".")


def prepared_text(data_dir: Path, corpus: str, pair: str, name: str) -> Path:
    """The file TEST.LANGUAGE of the data that was prepared last, which may not exist."""
    folder = data_dir / corpus / pair
    found = sorted(folder.glob(f"prepared*/{name}"), key=lambda path: path.stat().st_mtime_ns)
    return found[-1] if found else folder / "prepared" / name
