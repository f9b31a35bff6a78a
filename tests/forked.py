"""Runs fairseq's command lines, and the experiments', in forks of one process that has imported fairseq.

Each command runs in its own process, and behaves like `python -m`, with or without the plugin. Only the variables that
Python itself reads from the environment are those of the first process. Forking saves the start of Python and the
import of torch and fairseq, which take longer than most of the commands in the tests.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]


def run(module: str, arguments: list[str], stdin: str | None, environment: Mapping[str, str]) -> Any:
    """Runs `python -m module arguments`, and returns the finished process with its output as text."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as directory:
        files = [Path(directory, name) for name in ("stdin", "stdout", "stderr")]
        files[0].write_text(stdin or "")
        call = {"module": module, "arguments": arguments, "environment": dict(environment), "directory": os.getcwd()}
        server.stdin.write(json.dumps({**call, "files": list(map(str, files))}) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        assert answer, "the process that runs fairseq's commands ended"
        code = int(answer)
        outputs = [file.read_text() for file in files[1:]]
    return subprocess.CompletedProcess([sys.executable, "-m", module, *arguments], code, *outputs)


def run_command(command: list[str]) -> Any:
    """The same for the words of a whole command, `python -m module arguments`."""
    _, _, module, *arguments = command
    return run(module, arguments, None, os.environ)


@cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.forked"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    atexit.register(server.kill)
    return server


def serve() -> None:
    """Runs each call that it reads from standard input, and prints its exit status."""
    import fairseq.checkpoint_utils
    import fairseq.options
    import fairseq.sequence_generator
    import fairseq.trainer  # noqa: F401 - imports what all commands need

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(module: str, arguments: list[str], environment: dict[str, str], directory: str, files: list[str]) -> NoReturn:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    signal.alarm(1800)  # ends a command that hangs
    for descriptor, mode in enumerate((os.O_RDONLY, os.O_CREAT | os.O_WRONLY, os.O_CREAT | os.O_WRONLY)):
        os.dup2(os.open(files[descriptor], mode), descriptor)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115
    logging.root.handlers.clear()  # made by importing fairseq; its commands make their own
    sys.argv = [module, *arguments]
    sys.path[0] = directory
    code: Any = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
        code = 0 if code is None else code if isinstance(code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve()
