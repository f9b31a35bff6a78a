"""A paper's table: its list of settings, its plan, its jobs with real processes, its print, and the whole for real."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from posenc_experiments.cli import group
from posenc_experiments.commands.table import share_hardware
from posenc_experiments.errors import RecipeError
from posenc_experiments.evaluation.table import as_csv, as_markdown, as_text, make_lines
from posenc_experiments.jobs.executors import Local, _last_error, parse_slurm, slurm_parameters
from posenc_experiments.jobs.job import STARTED, Job
from posenc_experiments.jobs.progress import Progress
from posenc_experiments.jobs.runner import Runner
from posenc_experiments.workflow.experiment import Experiment
from posenc_experiments.workflow.plan import DATA, TRAIN, Options, Plan, make_plan
from posenc_experiments.workflow.rows import COLUMNS, read_table
from posenc_experiments.workflow.run import last_words
from posenc_experiments.workflow.stages import read_json, write_json
from tests.recipes.tiny import CONF, make_recipe

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(path for path in (ROOT / "recipes").glob("*/tables/*.tsv"))
HEADER = "\t".join(COLUMNS)
ROW = "K = 2\ten-de\ttiny\tshaw-k2\ttest\tsacrebleu\t25.8"
BAD = "bad = shaw --encoder-attention-heads 3\n"  # of 16 dimensions: fails when the model is built


def write_table(recipe: Path, *lines: str, name: str = "paper") -> Path:
    path = recipe / "tables" / f"{name}.tsv"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return make_recipe(tmp_path, CONF + BAD)[0].parent


def plan(recipe: Path, seeds: list[int] | None = None, **options: Any) -> Plan:
    root = recipe.parent
    settings = {"seeds": seeds or [1], "data_dir": root / "data", "output_dir": root / "output", **options}
    return make_plan(read_table(recipe, "paper"), Options(folder=recipe, **settings))


class TestReading:
    def test_comments_title_and_figures(self, recipe: Path) -> None:
        write_table(recipe, "# A title", "", HEADER, "# more", ROW, ROW.replace("K = 2", "other").replace("25.8", "-"))
        table = read_table(recipe, "paper")
        assert (table.name, table.title) == ("paper", "A title")
        assert [(row.label, row.paper) for row in table.rows] == [("K = 2", 25.8), ("other", None)]

    @pytest.mark.parametrize(
        ("lines", "words"),
        [
            ([], ["first row", "row, pair, conf"]),
            ([HEADER.replace("test", "tset"), ROW], ["first row", "row, pair, conf"]),
            ([HEADER], ["has no rows"]),
            ([HEADER, ROW, ROW.replace("\ttest", "")], ["line 3", "6 columns instead of 7"]),
            ([HEADER, ROW.replace("shaw-k2", " ")], ["line 2", "'experiment' is empty"]),
            (
                [HEADER, ROW.replace("sacrebleu", "bleu")],
                ["line 2", "'bleu' is not a metric", "historical and sacrebleu"],
            ),
            ([HEADER, ROW.replace("25.8", "25,8")], ["line 2", "'25,8'"]),
            ([HEADER, ROW.replace("25.8", "nan")], ["line 2", "'nan'"]),
            ([HEADER, ROW, ROW], ["line 3", "'K = 2' of en-de is also in", "line 2"]),
            ([HEADER, ROW.replace("en-de", "en-fr")], ["line 2", "tiny.conf has no pair 'en-fr'", "en-de, de-en"]),
            ([HEADER, ROW.replace("\ttiny", "\tbig")], ["line 2", "has no big.conf", "it has tiny"]),
            ([HEADER, ROW.replace("shaw-k2", "alibi")], ["line 2", "no experiment 'alibi'", "sinusoidal"]),
            ([HEADER, ROW.replace("test\t", "dev\t")], ["line 2", "no test set 'dev'", "it has test"]),
        ],
    )
    def test_a_fault_is_one_sentence_with_file_and_line(self, recipe: Path, lines: list[str], words: list[str]) -> None:
        path = write_table(recipe, *lines)
        with pytest.raises(RecipeError) as caught:
            plan(recipe)
        text = str(caught.value)
        assert text.startswith(str(path))
        assert text.endswith(".")
        for word in words:
            assert word in text

    @pytest.mark.parametrize("name", [None, "papre"])
    def test_the_tables_are_named(self, recipe: Path, name: str | None) -> None:
        write_table(recipe, HEADER, ROW)
        with pytest.raises(RecipeError, match=r"its tables are paper\."):
            read_table(recipe, name)

    @pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parents[1].name}/{path.stem}")
    def test_the_shipped_tables_name_what_their_confs_have(self, path: Path, tmp_path: Path) -> None:
        folder = path.parents[1]
        options = Options(folder=folder, seeds=[1], data_dir=tmp_path, output_dir=tmp_path)
        made = make_plan(read_table(folder, path.stem), options)
        assert len(made.job_of) == len(made.rows)


class TestPlan:
    def test_the_same_setting_is_trained_once(self, recipe: Path) -> None:
        write_table(recipe, HEADER, ROW, ROW.replace("K = 2", "again"), ROW.replace("en-de", "de-en"))
        made = plan(recipe, [1, 2])
        assert len(made.rows) == 3
        assert [job.title for job in made.jobs] == [
            *("download en-de", "prepare en-de", "download de-en", "prepare de-en"),
            *(f"{pair} tiny shaw-k2 seed {seed}" for pair in ("en-de", "de-en") for seed in (1, 2)),
        ]
        write_table(recipe, HEADER, ROW, name="other")
        other = make_plan(read_table(recipe, "other"), plan_options(recipe))
        assert other.jobs[-1].directory == made.jobs[4].directory
        assert other.jobs[-1].name == made.jobs[4].name
        assert len({job.name for job in made.jobs}) == len(made.jobs)

    def test_a_job_is_a_command_line_of_the_pipeline(self, recipe: Path) -> None:
        write_table(recipe, HEADER, ROW)
        made = plan(recipe, cpus=3, overrides=("train.max-epoch=5",), extra={"dropout": "0.1"})
        words = made.jobs[-1].command[3:]
        assert made.jobs[-1].command[1:4] == ["-m", "posenc_experiments", "run"]
        result = CliRunner().invoke(group, [*words[: words.index("--")], "--dry-run", *words[words.index("--") :]])
        assert result.exit_code == 0, result.output
        assert "--max-epoch 5" in result.output
        assert "--dropout 0.1" in result.output
        assert str(made.rows[0].experiments[0].directory) in result.output
        assert "fairseq_cli.preprocess" not in result.output

    @pytest.mark.parametrize(("old", "new"), [("lr = 1e-2", "lr = 1e-3"), ("beam = 2", "beam = 3")])
    def test_confs_whose_experiments_have_one_directory_are_refused(self, recipe: Path, old: str, new: str) -> None:
        (recipe / "other.conf").write_text(CONF.replace(old, new))
        write_table(recipe, HEADER, ROW, ROW.replace("\ttiny", "\tother").replace("K = 2", "x"))
        with pytest.raises(RecipeError, match=r"tiny\.conf, .*other\.conf, .*different experiments with one directory"):
            plan(recipe)
        other = CONF.replace(old, new).replace("size = tiny", "size = tiny\nsetup = other")
        (recipe / "other.conf").write_text(other)
        assert len(plan(recipe).job_of) == 2

    def test_experiments_whose_flags_collide_on_disk_are_jobs_of_their_own(self, recipe: Path) -> None:
        rows = "a = shaw --finetune-from-model m/a.pt\nb = shaw --finetune-from-model m_a.pt\n"
        (recipe / "tiny.conf").write_text(CONF + rows)
        write_table(recipe, HEADER, ROW.replace("shaw-k2", "a"), ROW.replace("shaw-k2", "b").replace("K = 2", "x"))
        made = plan(recipe)
        assert len({job.directory for job in made.job_of.values()}) == len(made.rows) == 2

    def test_confs_that_prepare_one_pair_differently_are_refused(self, recipe: Path) -> None:
        (recipe / "other.conf").write_text(CONF.replace("[prepare]", "[prepare]\nmax-tokens = 7"))
        write_table(recipe, HEADER, ROW, ROW.replace("\ttiny", "\tother").replace("K = 2", "x"))
        with pytest.raises(RecipeError, match=r"^other\.conf and tiny\.conf prepare en-de differently: "):
            plan(recipe)


def plan_options(recipe: Path) -> Options:
    return Options(folder=recipe, seeds=[1], data_dir=recipe.parent / "data", output_dir=recipe.parent / "output")


class TestHardware:
    def test_cpus_are_shared(self) -> None:
        slots, hardware = share_hardware("local", gpus=0, gpus_per_job=1, cpus=6, jobs=3)
        assert (slots[TRAIN], hardware) == (["0", "1", "2"], {"gpus": 0, "cpus": 2, "data_cpus": 6})
        assert len(share_hardware("local", 0, 1, 6, 0)[0][TRAIN]) == 6
        assert len(share_hardware("local", 0, 1, 6, None)[0][TRAIN]) == 1

    def test_gpus_are_shared_as_the_user_named_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("posenc_experiments.commands.table.count_gpus", lambda: 5)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,GPU-a,2,3,1")
        slots, hardware = share_hardware("local", gpus=None, gpus_per_job=2, cpus=8, jobs=None)
        assert (slots[TRAIN], hardware) == (["7,GPU-a", "2,3"], {"gpus": 2, "cpus": 4, "data_cpus": 8})
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        assert share_hardware("local", 3, 1, 8, 2)[0][TRAIN] == ["0", "1"]
        with pytest.raises(RecipeError, match="--gpus-per-job 4: there are 3 GPUs"):
            share_hardware("local", 3, 4, 8, None)
        with pytest.raises(RecipeError, match="--gpus 6: PyTorch sees 5"):
            share_hardware("local", 6, 1, 8, None)

    def test_slurms_parameters_are_submitits(self, recipe: Path) -> None:
        from submitit.slurm.slurm import _make_sbatch_string

        write_table(recipe, HEADER, ROW)
        job = plan(recipe, gpus=2, cpus=6).jobs[-1]
        asked = parse_slurm(
            ("partition=gpu", "time=90", "reservation=mine", "srun-args=--cpu-bind=none", "exclusive=true")
        )
        found = {name.removeprefix("slurm_"): value for name, value in slurm_parameters(job, asked).items()}
        found["ntasks_per_node"] = found.pop("tasks_per_node")
        found["job_name"] = found.pop("name")
        text = _make_sbatch_string(command="true", folder="logs", **found)
        for line in ("partition=gpu", "time=90", "reservation=mine", "gpus-per-node=2", "cpus-per-task=6", "requeue"):
            assert f"#SBATCH --{line}\n" in text
        assert re.search(r"srun .* --cpus-per-task=6 --cpu-bind=none true\n", text)
        assert f"#SBATCH --job-name={job.name}\n" in text

    @pytest.mark.parametrize("word", ["partition", "=gpu", "time=", "time=1-00:00:00"])
    def test_what_is_no_slurm_parameter_is_refused(self, word: str) -> None:
        with pytest.raises(RecipeError, match=f"^--slurm {word}: write "):
            parse_slurm((word,))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("sbatch: unrecognized option '--x=1'\nTry \"sbatch --help\" for more", "sbatch: unrecognized option '--x=1'."),
        ("sbatch: error: one\nsbatch: error: two\n", "sbatch: error: two."),
        ("", "it says nothing."),
    ],
)
def test_of_what_slurm_says_the_reason_is_kept(said: str, why: str) -> None:
    assert _last_error(said) == why


def shell_job(directory: Path, name: str, script: str, *needs: Job, pool: str = TRAIN) -> Job:
    """A job that makes a file of its name."""
    made = directory / f"{name}.made"
    return Job(
        title=name,
        directory=directory / name,
        command=["sh", "-c", f"{script} && touch {made}"],
        is_done=made.is_file,
        locks=[directory / "other" / name],
        pool=pool,
        needs=list(needs),
    )


class TestRunner:
    """The runner with real processes of submitit's local executor."""

    def run(self, jobs: list[Job], slots: int = 4) -> tuple[dict[str, str], str]:
        console = Console(record=True, width=1000, file=open(os.devnull, "w"))  # noqa: SIM115
        with Progress(console, jobs) as progress:
            runner = Runner(Local(), {DATA: ["0"], TRAIN: [str(number) for number in range(slots)]}, progress)
            failures = runner.run(jobs)
        return {job.title: reason for job, reason in failures.items()}, console.export_text()

    def test_one_that_fails_stops_only_what_needs_it(self, tmp_path: Path) -> None:
        data = shell_job(tmp_path, "data", "true", pool=DATA)
        broken = shell_job(tmp_path, "broken", "echo 'error: no such corpus' && exit 3", pool=DATA)
        jobs = [data, broken, shell_job(tmp_path, "good", "true", data), shell_job(tmp_path, "poor", "true", broken)]
        failures, said = self.run([*jobs, shell_job(tmp_path, "idle", "true", pool=DATA)])
        log = tmp_path / "broken" / "job.log"
        assert failures == {
            "broken": f"broken failed: no such corpus; the whole log is {log}.",
            "poor": "poor was not started, because broken failed.",
        }
        assert (tmp_path / "good.made").is_file()
        assert not (tmp_path / "poor.made").exists()
        assert "idle" not in said  # nothing needs it
        assert "good: done [2 done" in said

    def test_slots_are_never_shared(self, tmp_path: Path) -> None:
        script = f"test ! -e {tmp_path}/busy && touch {tmp_path}/busy && sleep 0.2 && rm {tmp_path}/busy"
        failures, _ = self.run([shell_job(tmp_path, f"job{number}", script) for number in range(3)], slots=1)
        assert failures == {}

    def test_what_an_earlier_runner_left_is_waited_for_and_keeps_its_slot(self, tmp_path: Path) -> None:
        script = f"echo ran >> {tmp_path}/count && sleep 3"
        job = shell_job(tmp_path, "left", script)
        Local().submit(job, "1", {})
        while not job.about():
            time.sleep(0.05)
        again, other = shell_job(tmp_path, "left", script), shell_job(tmp_path, "other", "true")
        failures, said = self.run([again, other], slots=2)
        assert failures == {}
        assert "left: running (running since before)" in said
        assert (tmp_path / "count").read_text() == "ran\n"
        assert read_json(other.directory / "job.json")["slot"] == "0"

    def test_what_was_killed_with_its_runner_is_run_again(self, tmp_path: Path) -> None:
        script = f"echo ran >> {tmp_path}/count && {{ test -e {tmp_path}/again || exec sleep 60; }}"
        job, executor = shell_job(tmp_path, "cut", script), Local()
        executor.submit(job, "0", {})
        while not (tmp_path / "count").exists():
            time.sleep(0.05)
        (tmp_path / "again").touch()
        killer = subprocess.Popen(["sh", "-c", f"sleep 2; kill -9 {job.about()['process']}"])
        failures, said = self.run([shell_job(tmp_path, "cut", script)])
        killer.wait()
        assert failures == {}
        assert "waiting (was interrupted)" in said
        assert (tmp_path / "count").read_text() == "ran\nran\n"

    def test_a_run_of_the_recipe_itself_is_waited_for(self, tmp_path: Path) -> None:
        job = shell_job(tmp_path, "both", "true")
        job.locks[0].mkdir(parents=True)
        subprocess.Popen(["flock", str(job.locks[0] / ".lock"), "sh", "-c", f"sleep 2 && touch {tmp_path}/both.made"])
        while not (job.locks[0] / ".lock").exists():
            time.sleep(0.05)
        failures, said = self.run([job])
        assert failures == {}
        assert "running since before" in said
        assert not job.log.exists()

    def test_only_the_latest_starts_words_count(self, tmp_path: Path) -> None:
        log = tmp_path / "job.log"
        log.write_text("=== first\nerror: the old one.\n=== second\nepoch 1\n")
        assert last_words(log, STARTED) == "epoch 1"
        assert last_words(log) == "the old one"


def finish(experiment: Experiment, bleu: float, historical: float | None = None, interval: float | None = 0.5) -> None:
    """The files of an experiment that was scored."""
    directory = experiment.directory
    write_json(directory / "experiment.json", experiment.description())
    metrics = [
        {"name": "BLEU", "score": bleu, "signature": "sig:bleu", "confidence_var": interval},
        {"name": "chrF2", "score": 50.0, "signature": "sig:chrf"},
    ]
    write_json(experiment.test_file("test", "sacrebleu.json"), metrics)
    if historical is not None:
        value = {"name": "BLEU", "score": historical, "signature": "sig:old", "confidence_var": interval}
        write_json(experiment.test_file("test", "historical.json"), [value])
    experiment.markers.set_done("score", experiment.score_inputs(), [experiment.test_file("test", "sacrebleu.json")])


class TestReport:
    @pytest.fixture
    def made(self, recipe: Path) -> Plan:
        write_table(recipe, "# Paper", HEADER, ROW, ROW.replace("K = 2", "absolute").replace("shaw-k2", "sinusoidal"))
        return plan(recipe)

    def test_one_seed_has_its_interval_and_several_their_spread(self, recipe: Path, made: Plan) -> None:
        for planned, bleu in zip(made.rows, (24.0, 26.3), strict=True):
            finish(planned.experiments[0], bleu)
        text = as_text("Paper", make_lines(made))
        assert re.search(r"K = 2 +24.00 ± 0.50 +50.00 +25.80 +-1.80\n", text)
        assert "BLEU: sig:bleu\n" in text
        assert "missing" not in text
        assert "historical" not in text
        several = plan(recipe, [1, 2, 3])
        finish(several.rows[0].experiments[1], 25.0)
        text = as_text("Paper", make_lines(several))
        assert re.search(r"K = 2 +24.50 ± 0.71 +50.00 ± 0.00 +25.80 +-1.30 +seed 3 not trained\n", text)

    def test_the_historical_score_stands_beside_sacrebleus(self, recipe: Path) -> None:
        write_table(recipe, "# Paper", HEADER, ROW.replace("sacrebleu", "historical"))
        made = plan(recipe)
        finish(made.rows[0].experiments[0], 25.0, historical=26.0)
        lines = make_lines(made)
        text = as_markdown("Paper", lines)
        assert re.search(r"\| K = 2 \| +26.00 ± 0.50 \| 25.00 ± 0.50 \| +50.00 \| +25.8 \| +\+0.20 \|\n", text)
        assert "historical BLEU: sig:old\n" in text
        assert "SacreBLEU: sig:bleu\n" in text
        row = next(csv.DictReader(as_csv(lines).splitlines()))
        assert (float(row["score"]), float(row["bleu"]), row["historical_signature"]) == (26.0, 25.0, "sig:old")

    def test_the_lowercased_score_needs_that_kind(self, recipe: Path) -> None:
        write_table(recipe, "# Paper", HEADER, ROW.replace("sacrebleu\t25.8", "lowercase\t41.02"))
        made = plan(recipe)
        finish(made.rows[0].experiments[0], 25.0, historical=41.0)  # of the other kind: not set beside the figure
        text = as_text("Paper", make_lines(made))
        assert "41.0 " not in text.replace("41.02", "")
        assert "no lowercased BLEU: set 'tokenized = lowercase' in [score]" in text
        made = plan(recipe, overrides=("score.tokenized=lowercase",))
        finish(made.rows[0].experiments[0], 25.0, historical=41.0)
        text = as_text("Paper", make_lines(made))
        assert re.search(r"K = 2 +41.00 ± 0.50 +25.00 ± 0.50 +50.00 +41.02 +-0.02\n", text)
        assert "lowercased BLEU: sig:old\n" in text

    def test_why_something_is_missing(self, made: Plan) -> None:
        first, second = (planned.experiments[0] for planned in made.rows)
        assert [line.missing for line in make_lines(made)] == ["not trained", "not trained"]
        assert [line.missing for line in make_lines(made, [first.directory])] == ["failed", "not trained"]
        write_json(second.directory / "training.json", {})
        second.markers.set_done("train", second.train_inputs(), [second.directory / "training.json"])
        first.directory.mkdir(parents=True)
        first.train_log.touch()
        assert [line.missing for line in make_lines(made)] == ["training not finished", "not scored"]
        finish(first, 24.0)
        lines = make_lines(made)
        assert [line.score is None for line in lines] == [False, True]
        # Scores of other settings are not shown as these.
        first.markers.set_done("score", "other inputs", [])
        assert make_lines(made)[0].score is None

    def test_signatures_that_differ_are_warned_of(self, made: Plan) -> None:
        for planned in made.rows:
            finish(planned.experiments[0], 24.0)
        path = made.rows[0].experiments[0].test_file("test", "sacrebleu.json")
        path.write_text(path.read_text().replace("sig:bleu", "sig:other"))
        experiment = made.rows[0].experiments[0]
        experiment.markers.set_done("score", experiment.score_inputs(), [path])
        assert "Warning: the BLEU signatures differ" in as_text("Paper", make_lines(made))


def command(recipe: Path, *options: str) -> list[str]:
    root = recipe.parent
    words = [sys.executable, "-m", "posenc_experiments", "table", "--recipe", recipe, "paper", "--gpus", "0"]
    words += ["--cpus", "1", "--jobs", "1", "--source", root / "corpus"]
    return [str(word) for word in (*words, "--data-dir", root / "data", "--output-dir", root / "output", *options)]


def run_table(recipe: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(recipe, *options), cwd=ROOT, capture_output=True, encoding="utf-8", check=False)


def kill_when(condition: Any, recipe: Path, *options: str) -> None:
    """Starts the runner and kills it, and it alone, when the condition holds."""
    process = subprocess.Popen(command(recipe, *options), cwd=ROOT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert condition()


def test_killed_while_training_and_called_again_it_ends_with_the_table(recipe: Path) -> None:
    write_table(recipe, "# Paper", HEADER, ROW, ROW.replace("shaw-k2", "bad").replace("K = 2", "broken"))
    good, bad = (planned.experiments[0] for planned in plan(recipe).rows)
    kill_when((good.checkpoints / "checkpoint1.pt").exists, recipe)
    process = run_table(recipe)
    assert process.returncode == 1
    assert "en-de tiny shaw-k2 seed 1: running (running since before)" in process.stdout
    assert (
        recipe.parent / "output/tiny/jobs" / good.directory.relative_to(recipe.parent / "output/tiny") / "job.log"
    ).read_text().count("=== ") == 1
    error = process.stderr.strip()
    assert "\n" not in error
    assert error.startswith("Error: en-de tiny bad seed 1 failed: Training bad en-de seed 1 failed (exit status 1): ")
    assert error.count(f"; the whole log is {bad.train_log}.") == 1
    assert Path(error.rsplit(" ", 1)[1].rstrip(".")).is_file()
    score = read_json(good.test_file("test", "sacrebleu.json"))[0]["score"]
    assert re.search(rf"K = 2 +{score:.2f}.* 25.80 ", process.stdout)
    assert re.search(r"broken +25.80 +failed\n", process.stdout)
    tables = recipe.parent / "output" / "tiny" / "tables"
    rows = list(csv.DictReader((tables / "paper.csv").read_text().splitlines()))
    assert [float(row["score"] or "nan") == score for row in rows] == [True, False]

    shown = run_table(recipe, "--show")
    assert shown.returncode == 0
    assert "training not finished" in shown.stdout
    assert f"{score:.2f}" in (tables / "paper.md").read_text()


@pytest.mark.slow
def test_killed_at_any_time_it_ends_with_the_table_of_an_unbroken_run(recipe: Path) -> None:
    write_table(recipe, "# Paper", HEADER, ROW, ROW.replace("shaw-k2", "sinusoidal").replace("K = 2", "absolute"))
    unbroken = recipe.parent / "unbroken"
    process = run_table(recipe, "--output-dir", str(unbroken), "--data-dir", str(unbroken / "data"))
    assert process.returncode == 0, process.stderr
    first, second = (planned.experiments[0] for planned in plan(recipe).rows)
    for condition in (
        (recipe.parent / "output/tiny/jobs/en-de/download/job.json").exists,
        (first.checkpoints / "checkpoint2.pt").exists,
        first.averaged.exists,
        (second.checkpoints / "checkpoint1.pt").exists,
    ):
        kill_when(condition, recipe)
    process = run_table(recipe)
    assert process.returncode == 0, process.stderr
    for kind in ("md", "csv"):
        found, wanted = (
            (root / "tiny/tables" / f"paper.{kind}").read_bytes() for root in (recipe.parent / "output", unbroken)
        )
        assert found == wanted


def test_interrupted_it_ends_its_jobs(recipe: Path) -> None:
    write_table(recipe, "# Paper", HEADER, ROW)
    process = subprocess.Popen(command(recipe), cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8")
    about = recipe.parent / "output/tiny/jobs/en-de/download/job.json"
    while not about.exists() and process.poll() is None:
        time.sleep(0.02)
    process.terminate()
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted: run again to go on." in said
    job = read_json(about)["process"]
    with pytest.raises(ProcessLookupError):
        os.kill(job, 0)


def test_dry_run_prints_every_command_and_writes_nothing(recipe: Path) -> None:
    write_table(recipe, "# Paper", HEADER, ROW)
    before = sorted(recipe.parent.rglob("*"))
    words = command(recipe, "--seeds", "1,2", "--precision", "fp32", "--dry-run", "--", "--dropout", "0.2")[3:]
    result = CliRunner().invoke(group, words)
    assert result.exit_code == 0, result.output
    lines = [line for line in result.output.splitlines() if not line.startswith("#")]
    assert [line.split("--stages ")[1].split()[0] for line in lines] == ["download", "prepare", *["train..score"] * 2]
    assert all("--precision fp32" in line and line.endswith("-- --dropout 0.2") for line in lines[2:])
    assert sorted(recipe.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--seeds", "one"], "--seeds one"),
        (["--source", "nowhere"], "--source nowhere: there is no such directory"),
        (["--slurm", "time=1"], "--slurm needs --executor slurm"),
        (["--", "--lr", "1", "2"], "behind --"),
        (["--set", "train.lr"], "--set train.lr"),
    ],
)
def test_misuse_is_one_sentence(recipe: Path, options: list[str], words: str) -> None:
    write_table(recipe, HEADER, ROW)
    result = CliRunner().invoke(group, [*command(recipe)[3:], *options])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert not (recipe.parent / "output").exists()


def test_a_flag_that_fairseq_refuses_is_found_before_any_job(recipe: Path) -> None:
    write_table(recipe, HEADER, ROW)
    process = run_table(recipe, "--set", "train.learning-rat=1")
    assert process.returncode == 1
    assert process.stderr.startswith("Error: --set train.learning-rat: ")
    assert not (recipe.parent / "output").exists()


class TestBatchFile:
    FILE = str(ROOT / "recipes" / "common" / "slurm.sbatch")

    def test_without_arguments_it_says_how_it_is_used(self) -> None:
        process = subprocess.run(["bash", self.FILE], capture_output=True, encoding="utf-8", check=False)
        assert (process.returncode, process.stdout) == (2, "")
        assert process.stderr.startswith("usage: sbatch ")

    def test_outside_slurm_it_names_run_sh(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        words = ["bash", self.FILE, "wmt14"]
        process = subprocess.run(words, capture_output=True, encoding="utf-8", check=False, env=environment)
        assert process.returncode == 2
        assert "recipes/wmt14/run.sh" in process.stderr


def _has_slurm() -> bool:
    try:
        return subprocess.run(["sinfo"], capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


@pytest.mark.slow
@pytest.mark.skipif(not _has_slurm(), reason="no SLURM answers here (sinfo)")
def test_in_slurms_queue_nothing_is_submitted_twice(recipe: Path) -> None:
    write_table(recipe, "# Paper", HEADER, ROW)
    (experiment,) = plan(recipe).rows[0].experiments
    options = ["--executor", "slurm", "--slurm", "time=30"]
    kill_when((experiment.checkpoints / "checkpoint1.pt").exists, recipe, *options)
    process = run_table(recipe, *options)
    assert process.returncode == 0, process.stderr
    assert "running" in process.stdout
    log = plan(recipe).jobs[-1].log.read_text()
    assert log.count("=== ") == 1
    assert json.loads(experiment.test_file("test", "sacrebleu.json").read_text())[0]["signature"] in process.stdout
