"""Runs commands: their logs, and how they end with the call that started them."""

import ctypes
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import atomic_path
from posenc_experiments.base.run import Run

POLL_SECONDS = 0.3
FULL_DISK = 1 << 20  # bytes that are free
# Looked up at import, because a process with threads must not load anything between fork and exec. Only Linux has
# prctl; elsewhere a command may outlive a killed pipeline and hold its lock, and the next call is refused.
PRCTL = getattr(ctypes.CDLL(None), "prctl", None)


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
    with open(log, "ab") as file:
        began = file.tell()
        process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **run.session.visible, **(environment or {})},
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
