"""Waits for a state, such as the one in which a test kills a process."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: generous, because on a busy machine a training needs minutes to start; only a test that fails waits so long
SECONDS = 300


def wait_until(condition: Callable[[], object], *processes: subprocess.Popen[Any]) -> None:
    """Waits until a condition holds, while the processes run.

    Raises:
        AssertionError: a process ended before, or the time ran out. The processes are killed.
    """
    deadline = time.monotonic() + SECONDS
    try:
        while not condition():
            for process in processes:
                assert process.poll() is None, f"{process.args!r} ended too early, with status {process.returncode}"
            assert time.monotonic() < deadline, f"the condition did not hold in {SECONDS} seconds"
            time.sleep(0.01)
    except BaseException:
        for process in processes:
            process.kill()
            process.wait()
        raise


def kill_when(condition: Callable[[], object], command: list[str]) -> None:
    """Starts a command and kills it when a condition holds."""
    process = subprocess.Popen(command, cwd=Path(__file__).resolve().parents[1], stdout=subprocess.DEVNULL)
    wait_until(condition, process)
    process.kill()
    assert process.wait() == -signal.SIGKILL


def is_held(lock: Path) -> bool:
    """Whether a process holds this lock."""
    return subprocess.run(["flock", "--nonblock", lock, "true"], check=False).returncode != 0
