"""Runs fairseq's command lines, and the experiments', in forks of one process that has imported fairseq.

Each is a process of its own, which loads the plugin or not and ends as `python -m` would; what Python itself reads from
the environment is that of the first process. To start Python and to import torch and fairseq takes longer than most of
what the tests run.
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
    """A finished `python -m module arguments`, with its outputs as text."""
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
    """Answers each call on the standard input with an exit status."""
    import fairseq.checkpoint_utils
    import fairseq.options
    import fairseq.sequence_generator
    import fairseq.trainer  # noqa: F401 - they import what all commands need

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(module: str, arguments: list[str], environment: dict[str, str], directory: str, files: list[str]) -> NoReturn:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    signal.alarm(1800)  # ends what hangs
    for descriptor, mode in enumerate((os.O_RDONLY, os.O_CREAT | os.O_WRONLY, os.O_CREAT | os.O_WRONLY)):
        os.dup2(os.open(files[descriptor], mode), descriptor)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115
    logging.root.handlers.clear()  # fairseq's imports made them, where its commands make their own first
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
