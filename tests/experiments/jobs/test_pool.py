"""The pool of jobs, which start real processes."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.run import Run, Session
from posenc_experiments.jobs.job import Job, Scheduler
from posenc_experiments.jobs.pool import run_jobs
from tests.experiments.tiny import make_run


def shell_job(directory: Path, name: str, script: str, *needs: Job) -> Job:
    """A job that writes a file of its name."""
    made = directory / f"{name}.made"

    def work(slot: str) -> None:
        words = ["sh", "-c", f"{script} && touch {made}"]
        process = subprocess.run(words, env={**os.environ, "SLOT": slot}, capture_output=True, check=False)
        if process.returncode != 0:
            raise RecipeError(process.stdout.decode().strip())

    return Job(name, work, made.is_file, directory / name, needs=list(needs))


def run(jobs: list[Job], call: Run, slots: int = 4, nodes: int = 1) -> str:
    """Runs the jobs; returns what is printed, and then a line for each failure."""
    console = Console(record=True, width=1000, file=open(os.devnull, "w"))  # noqa: SIM115
    hardware = replace(call.hardware, slots=tuple(map(str, range(slots))), nodes=nodes)
    failures = run_jobs(jobs, Scheduler(replace(call, hardware=hardware, session=Session(console))))
    return console.export_text() + "".join(f"{job.title}! {reason}\n" for job, reason in failures.items())


@pytest.fixture
def call(recipe: Path) -> Run:
    return make_run(recipe.parent)


def test_a_failed_job_stops_only_jobs_that_need_it(tmp_path: Path, call: Run) -> None:
    data, broken = shell_job(tmp_path, "data", "true"), shell_job(tmp_path, "broken", "echo no such corpus; exit 3")
    poor = shell_job(tmp_path, "poor", "true", broken)
    download = shell_job(tmp_path, "download", "echo no network; exit 1")
    download.here = True
    jobs = [data, broken, shell_job(tmp_path, "good", "true", data), poor, shell_job(tmp_path, "last", "true", poor)]
    said = run([download, *jobs, shell_job(tmp_path, "lost", "true", download)], call)
    assert sorted(path.name for path in tmp_path.glob("*.made")) == ["data.made", "good.made"]
    assert said.endswith("download! no network\nbroken! no such corpus\n")
    for name, need in (("poor", "broken"), ("last", "poor"), ("lost", "download")):
        assert f"{name}: not started, because {need} failed [" in said


def test_machines_that_train_together_stop_together(tmp_path: Path, call: Run) -> None:
    jobs = [shell_job(tmp_path, "bad", "echo broken; exit 1"), shell_job(tmp_path, "next", "true")]
    assert run(jobs, call, slots=1, nodes=2).endswith("bad! broken\n")
    assert not (tmp_path / "next.made").exists()


def test_finished_jobs_are_skipped(tmp_path: Path, call: Run) -> None:
    (tmp_path / "before.made").touch()
    assert run([shell_job(tmp_path, "before", "exit 1")], call).startswith("before: done before [1 done, ")


def test_slots_are_never_shared(tmp_path: Path, call: Run) -> None:
    script = f"mkdir {tmp_path}/busy$SLOT && sleep 0.1 && rmdir {tmp_path}/busy$SLOT"
    said = run([shell_job(tmp_path, f"job{number}", script) for number in range(5)], call, slots=2)
    assert "failed: " not in said


def test_unexpected_errors_are_raised(tmp_path: Path, call: Run) -> None:
    job = shell_job(tmp_path, "ours", "true")
    job.work = lambda slot: print(1 // 0)
    with pytest.raises(ZeroDivisionError):
        run([job], call)
