"""Jobs in SLURM's queue: their parameters, and a table with scripts in place of SLURM's programs."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import read_json
from posenc_experiments.jobs.slurm import Slurm, parse_slurm
from tests.experiments.tables import HEADER, ROW, command, plan, run_table, write_table
from tests.experiments.tiny import run_recipe
from tests.waiting import kill_when


def test_parameters_of_slurm_reach_submitit(recipe: Path) -> None:
    from submitit.slurm.slurm import _make_sbatch_string

    write_table(recipe, HEADER, ROW)
    words = ("partition=gpu", "time=90", "reservation=mine", "srun-args=--cpu-bind=none", "exclusive=true")
    made = plan(recipe, executor="slurm", gpus=None, gpus_per_job=2, cpus=6, slurm_words=words)
    (job,), run = made.experiment_jobs.values(), made.experiments[0].run
    given = {name.removeprefix("slurm_"): value for name, value in Slurm(run).parameters(job).items()}
    given |= {"ntasks_per_node": given.pop("tasks_per_node"), "job_name": given.pop("name")}
    text = _make_sbatch_string(command="true", folder="logs", **given)
    for line in ("partition=gpu", "time=90", "reservation=mine", "gpus-per-node=2", "cpus-per-task=6", "requeue"):
        assert f"#SBATCH --{line}\n" in text
    assert re.search(r"srun .* --cpus-per-task=6 --cpu-bind=none true\n", text)
    assert "#SBATCH --job-name=en-de.tiny.shaw-k2.seed.1\n" in text


@pytest.mark.parametrize("word", ["partition", "=gpu", "time=1-00:00:00", "cpus_per_task=all", "nodes=2"])
def test_invalid_slurm_parameters_are_refused(word: str) -> None:
    with pytest.raises(RecipeError, match=f"^--slurm {word}: write "):
        parse_slurm((word,))


# A queue on one machine: sbatch starts a job's script in the background, and sacct says which run.
PROGRAMS = {
    "sbatch": """
script=${!#}
number=$(find "$QUEUE" -name '*.id' | wc -l)
touch "$QUEUE/$number.id"
output=$(sed -n 's/^#SBATCH --output=//p' "$script")
SLURM_JOB_ID=$number SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NNODES=1 \\
    SLURM_JOB_NODELIST=localhost SLURM_JOB_NUM_NODES=1 setsid bash "$script" >"${output//%j/$number}" 2>&1 &
echo $! >"$QUEUE/$number.pid"
echo "Submitted batch job $number"
""",
    "srun": 'while [[ $1 == -* ]]; do [[ $1 == *=* || $1 == --unbuffered ]] || shift; shift; done; exec "$@"',
    "sacct": """
echo "JobID|State|NodeList"
for file in "$QUEUE"/*.pid; do
    kill -0 "$(cat "$file")" 2>/dev/null && state=RUNNING || state=FAILED
    echo "$(basename "$file" .pid)|$state|localhost"
done
""",
}


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a queue, whose programs are first on PATH."""
    programs, queue = tmp_path / "programs", tmp_path / "queue"
    for directory in (programs, queue):
        directory.mkdir()
    for name, script in PROGRAMS.items():
        (programs / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("QUEUE", str(queue))
    yield queue
    for path in queue.glob("*.pid"):
        subprocess.run(["kill", "--", f"-{path.read_text().strip()}"], check=False, capture_output=True)


@pytest.mark.slow
def test_killed_and_called_again_it_submits_nothing_twice(recipe: Path, queue: Path) -> None:
    write_table(recipe, HEADER, ROW)
    (experiment,) = plan(recipe).experiments
    options = ["--executor", "slurm", "--slurm", "time=30"]
    kill_when((experiment.checkpoints / "checkpoint1.pt").exists, command(recipe, *options))
    process = run_table(recipe, *options)
    assert process.returncode == 0, process.stderr
    assert len([*queue.glob("*.id")]) == 2  # the data and the training
    score = read_json(experiment.test_file("test", "sacrebleu.json"))[0]
    assert re.search(rf"K = 2 +{score['score']:.2f}.* 25.80 ", process.stdout)


def test_flags_that_do_not_fit_the_prepared_data_fail_its_job(recipe: Path, queue: Path) -> None:
    options = ["--source", recipe.parent / "corpus", "--set", "train.max-tokens=4", "--executor", "slurm"]
    process = run_recipe(recipe.parent, *options)
    assert process.returncode == 1
    assert re.match(r"Error: prepare en-de failed: --set train.max-tokens: .* is below the longest", process.stderr)
    assert len([*queue.glob("*.id")]) == 1


def test_failed_jobs_of_the_queue_are_reported(recipe: Path, queue: Path) -> None:
    process = run_recipe(recipe.parent, "--stages", "score", "--executor", "slurm")
    assert process.returncode == 1
    reason = r"shaw-k2 en-de seed 1: the stage translate is not done .*; the log of the job is .*\n$"
    assert re.match(f"Error: en-de tiny shaw-k2 seed 1 failed: {reason}", process.stderr)
    assert len([*queue.glob("*.id")]) == 1
