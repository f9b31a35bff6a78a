"""The pool of jobs, which start real processes."""

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.jobs.job import Job, Show
from posenc_experiments.jobs.pool import run_jobs
from posenc_experiments.jobs.progress import Progress


def shell_job(directory: Path, name: str, script: str, *needs: Job) -> Job:
    """A job that writes a file of its name."""
    made = directory / f"{name}.made"

    def work(slot: str, show: Show | None) -> None:
        words = ["sh", "-c", f"{script} && touch {made}"]
        process = subprocess.run(words, env={**os.environ, "SLOT": slot}, capture_output=True, check=False)
        if process.returncode != 0:
            raise RecipeError(process.stdout.decode().strip())

    return Job(name, work, [], made.is_file, directory / name, needs=list(needs))


def run(jobs: list[Job], slots: int = 4, **options: Any) -> tuple[dict[str, str], str]:
    console = Console(record=True, width=1000, file=open(os.devnull, "w"))  # noqa: SIM115
    with Progress(console, jobs, elsewhere=True) as progress:
        names = [str(number) for number in range(slots)]
        failures = run_jobs(jobs, names, lambda job, slot: job.work(slot, None), progress, threading.Event(), **options)
    return {job.title: reason for job, reason in failures.items()}, console.export_text()


def test_a_failed_job_stops_only_jobs_that_need_it(tmp_path: Path) -> None:
    data, broken = shell_job(tmp_path, "data", "true"), shell_job(tmp_path, "broken", "echo no such corpus; exit 3")
    poor = shell_job(tmp_path, "poor", "true", broken)
    jobs = [
        data,
        broken,
        shell_job(tmp_path, "good", "true", data),
        poor,
        shell_job(tmp_path, "last", "true", poor),
    ]
    failures, said = run(jobs)
    assert failures == {"broken": "no such corpus"}
    assert (tmp_path / "good.made").is_file()
    assert not (tmp_path / "poor.made").exists()
    assert "poor: failed (not started, because broken failed)" in said
    assert "last: failed (not started, because poor failed)" in said


def test_jobs_that_need_an_earlier_failure_are_not_started(tmp_path: Path) -> None:
    before = shell_job(tmp_path, "download", "true")
    between = shell_job(tmp_path, "prepare", "true", before)
    job = shell_job(tmp_path, "training", "true", before, between)
    failures, said = run([job], failures={before: "no network"})
    assert failures == {"download": "no network"}
    assert not (tmp_path / "training.made").exists()
    assert "training: failed (not started, because download failed)" in said


def test_machines_that_train_together_stop_together(tmp_path: Path) -> None:
    jobs = [shell_job(tmp_path, "bad", "echo broken; exit 1"), shell_job(tmp_path, "next", "true")]
    failures, _ = run(jobs, slots=1, together=True)
    assert failures == {"bad": "broken"}
    assert not (tmp_path / "next.made").exists()


def test_finished_jobs_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "before.made").touch()
    failures, said = run([shell_job(tmp_path, "before", "exit 1")])
    assert failures == {}
    assert "before: done (before) [1 done" in said


def test_slots_are_never_shared(tmp_path: Path) -> None:
    script = f"mkdir {tmp_path}/busy$SLOT && sleep 0.1 && rmdir {tmp_path}/busy$SLOT"
    failures, _ = run([shell_job(tmp_path, f"job{number}", script) for number in range(5)], slots=2)
    assert failures == {}


def test_unexpected_errors_are_raised(tmp_path: Path) -> None:
    job = shell_job(tmp_path, "ours", "true")
    job.work = lambda slot, show: print(1 // 0)
    with pytest.raises(ZeroDivisionError):
        run([job])
