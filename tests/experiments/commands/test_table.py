"""A paper's table: its list of settings, its plan, its jobs with real processes, its report, and the whole command."""

import csv
import io
import os
import re
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console
from sacrebleu.metrics.bleu import BLEU

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import read_json, write_json
from posenc_experiments.base.run import STAGES
from posenc_experiments.cli import group
from posenc_experiments.commands.options import Call, share_hardware
from posenc_experiments.commands.table import main, make_rows
from posenc_experiments.evaluation.paper import make_lines, report
from posenc_experiments.evaluation.paper_table import COLUMNS, Planned, read_table
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.jobs.job import Job, Show
from posenc_experiments.jobs.local import Local
from posenc_experiments.jobs.progress import Progress
from posenc_experiments.jobs.runner import Runner
from posenc_experiments.jobs.slurm import is_held
from posenc_experiments.workflow.plan import DATA, TRAIN, Plan, make_plan
from tests import forked
from tests.experiments import tiny
from tests.experiments.tiny import CONF, make_recipe
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = sorted(path for path in (ROOT / "recipes").glob("*/tables/*.tsv"))
HEADER = "\t".join(COLUMNS)
ROW = "K = 2\ten-de\ttiny\tshaw-k2\ttest\tsacrebleu\t25.8"
BAD = "bad = shaw --adam-betas 1\n"  # not two numbers: fails when the optimizer is made


def write_table(recipe: Path, *lines: str, name: str = "paper") -> Path:
    path = recipe / "tables" / f"{name}.tsv"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return make_recipe(tmp_path, CONF + BAD)[0].parent


def call(root: Path, **options: Any) -> Call:
    """A call of table.sh on one CPU, with these options."""
    words = ["--recipe", "recipe", "paper", "--gpus", "0", "--cpus", "1"]
    words += ["--data-dir", str(root / "data"), "--output-dir", str(root / "output")]
    return Call({**main.make_context("table", words).params, **options}, 1)


def rows(recipe: Path, seeds: str = "1", name: str = "paper", **options: Any) -> list[Planned]:
    return make_rows(read_table(recipe, name), recipe, call(recipe.parent, seeds=seeds, **options))


def plan(recipe: Path, seeds: str = "1", name: str = "paper", **options: Any) -> Plan:
    return make_plan([one for row in rows(recipe, seeds, name, **options) for one in row.experiments], [*STAGES[:-1]])


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
            ([HEADER, ROW.replace("shaw-k2", "*").replace("\ttiny", "\tbig")], ["line 2", "has no big.conf"]),
            ([HEADER, ROW.replace("shaw-k2", "alibi")], ["line 2", "no experiment 'alibi'", "sinusoidal"]),
            ([HEADER, ROW.replace("test\t", "dev\t")], ["line 2", "no test set 'dev'", "it has test"]),
            ([HEADER + "\tword", ROW + "\t1-2"], ["first row", "paper (and optionally words)"]),
            ([HEADER + "\twords", ROW], ["line 2", "7 columns instead of 8"]),
            ([HEADER + "\twords", ROW + "\t1-2 5-3"], ["line 2", "'5-3' is not a range of source words"]),
            ([HEADER + "\twords", ROW + "\tlong"], ["line 2", "'long'", "such as 1-14, or 15-"]),
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
        table = read_table(folder, path.stem)
        made = make_rows(table, folder, call(tmp_path))
        assert len(make_plan([row.experiments[0] for row in made], ["train"]).trainings) == len(table.rows)


class TestPlan:
    def test_the_same_setting_is_trained_once(self, recipe: Path) -> None:
        write_table(recipe, HEADER, ROW, ROW.replace("K = 2", "again"), ROW.replace("en-de", "de-en"))
        made = plan(recipe, "1,2")
        assert [job.title for job in [*made.data, *made.trainings.values()]] == [
            *("download en-de", "prepare en-de", "download de-en", "prepare de-en"),
            *(f"{pair} tiny shaw-k2 seed {seed}" for pair in ("en-de", "de-en") for seed in (1, 2)),
        ]
        write_table(recipe, HEADER, ROW, name="other")
        (other,), first = plan(recipe, name="other").trainings.values(), next(iter(made.trainings.values()))
        assert (other.directory, other.name) == (first.directory, first.name)
        assert len({job.name for job in made.to_do}) == len(made.to_do)

    def test_a_job_is_a_command_line_of_the_pipeline(self, recipe: Path) -> None:
        write_table(recipe, HEADER, ROW)
        made = plan(recipe, cpus=3, overrides=("train.max-epoch=5",), extra=("--dropout", "0.1"))
        (job,) = made.trainings.values()
        assert job.command[2:5] == ["-m", "posenc_experiments", "run"]
        words = job.command[4:]
        result = CliRunner().invoke(group, [*words[: words.index("--")], "--dry-run", *words[words.index("--") :]])
        assert result.exit_code == 0, result.output
        assert "--max-epoch 5" in result.output
        assert "--dropout 0.1" in result.output
        assert str(made.experiments[0].directory) in result.output
        assert "fairseq_cli.preprocess" not in result.output

    @pytest.mark.parametrize(("old", "new"), [("lr = 1e-2", "lr = 1e-3"), ("beam = 2", "beam = 3")])
    def test_confs_whose_experiments_have_one_directory_are_refused(self, recipe: Path, old: str, new: str) -> None:
        (recipe / "other.conf").write_text(CONF.replace(old, new))
        write_table(recipe, HEADER, ROW, ROW.replace("\ttiny", "\tother").replace("K = 2", "x"))
        with pytest.raises(RecipeError, match=r"tiny\.conf, .*other\.conf, .*different experiments with one directory"):
            plan(recipe)
        other = CONF.replace(old, new).replace("size = tiny", "size = tiny\nsetup = other")
        (recipe / "other.conf").write_text(other)
        assert len(plan(recipe).trainings) == 2

    def test_experiments_whose_flags_collide_on_disk_are_jobs_of_their_own(self, recipe: Path) -> None:
        rows = "a = shaw --finetune-from-model m/a.pt\nb = shaw --finetune-from-model m_a.pt\n"
        (recipe / "tiny.conf").write_text(CONF + rows)
        write_table(recipe, HEADER, ROW.replace("shaw-k2", "a"), ROW.replace("shaw-k2", "b").replace("K = 2", "x"))
        made = plan(recipe)
        assert len({job.directory for job in made.trainings.values()}) == len(made.experiments) == 2

    def test_confs_that_prepare_one_pair_differently_are_refused(self, recipe: Path) -> None:
        (recipe / "other.conf").write_text(CONF.replace("[prepare]", "[prepare]\nmax-tokens = 7"))
        write_table(recipe, HEADER, ROW, ROW.replace("\ttiny", "\tother").replace("K = 2", "x"))
        with pytest.raises(RecipeError, match=r"^tiny\.conf and other\.conf prepare en-de differently: "):
            plan(recipe)


class TestHardware:
    def test_cpus_are_shared(self) -> None:
        assert share_hardware("local", 0, 1, 6, 3) == (["0", "1", "2"], {"gpus": 0, "cpus": 6, "jobs": 3})
        assert len(share_hardware("local", 0, 1, 6, 0)[0]) == 6
        assert len(share_hardware("local", 0, 1, 6, None)[0]) == 1

    def test_gpus_are_shared_as_the_user_named_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("posenc_experiments.commands.options.count_gpus", lambda: 5)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,GPU-a,2,3,1")
        shared = share_hardware("local", gpus=None, gpus_per_job=2, cpus=8, jobs=None)
        assert shared == (["7,GPU-a", "2,3"], {"gpus": 2, "cpus": 8, "jobs": 2})
        assert share_hardware("local", 4, None, 8, None) == (["7,GPU-a,2,3"], {"gpus": 4, "cpus": 8, "jobs": 1})
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        assert share_hardware("local", 3, 1, 8, 2)[0] == ["0", "1"]
        with pytest.raises(RecipeError, match="--gpus-per-job 4: there are 3 GPUs"):
            share_hardware("local", 3, 4, 8, None)
        with pytest.raises(RecipeError, match="--gpus 6: PyTorch sees 5"):
            share_hardware("local", 6, 1, 8, None)


def shell_job(directory: Path, name: str, script: str, *needs: Job) -> Job:
    """A job that writes a file of its name."""
    made = directory / f"{name}.made"

    def work(slot: str, show: Show | None) -> None:
        words = ["sh", "-c", f"{script} && touch {made}"]
        process = subprocess.run(words, env={**os.environ, "SLOT": slot}, capture_output=True, check=False)
        if process.returncode != 0:
            raise RecipeError(process.stdout.decode().strip())

    return Job(name, work, [], made.is_file, directory / name, [], TRAIN, needs=list(needs))


class TestRunner:
    """The runner with real processes in the threads of the local executor."""

    def run(self, jobs: list[Job], slots: int = 4, **options: Any) -> tuple[dict[str, str], str]:
        console = Console(record=True, width=1000, file=open(os.devnull, "w"))  # noqa: SIM115
        with Progress(console, jobs, elsewhere=True) as progress:
            executor = Local(threading.Event(), None)
            runner = Runner(
                executor, {DATA: ["0"], TRAIN: [str(number) for number in range(slots)]}, progress, **options
            )
            failures = runner.run(jobs)
        return {job.title: reason for job, reason in failures.items()}, console.export_text()

    def test_a_failed_job_stops_only_jobs_that_need_it(self, tmp_path: Path) -> None:
        data, broken = shell_job(tmp_path, "data", "true"), shell_job(tmp_path, "broken", "echo no such corpus; exit 3")
        poor = shell_job(tmp_path, "poor", "true", broken)
        jobs = [
            data,
            broken,
            shell_job(tmp_path, "good", "true", data),
            poor,
            shell_job(tmp_path, "last", "true", poor),
        ]
        failures, said = self.run(jobs)
        assert failures == {"broken": "no such corpus"}
        assert (tmp_path / "good.made").is_file()
        assert not (tmp_path / "poor.made").exists()
        assert "poor: failed (not started, because broken failed)" in said
        assert "last: failed (not started, because poor failed)" in said

    def test_jobs_that_need_an_earlier_failure_are_not_started(self, tmp_path: Path) -> None:
        before = shell_job(tmp_path, "download", "true")
        between = shell_job(tmp_path, "prepare", "true", before)
        job = shell_job(tmp_path, "training", "true", before, between)
        failures, said = self.run([job], failures={before: "no network"})
        assert failures == {"download": "no network"}
        assert not (tmp_path / "training.made").exists()
        assert "training: failed (not started, because download failed)" in said

    def test_machines_that_train_together_stop_together(self, tmp_path: Path) -> None:
        jobs = [shell_job(tmp_path, "bad", "echo broken; exit 1"), shell_job(tmp_path, "next", "true")]
        failures, _ = self.run(jobs, slots=1, together=True)
        assert failures == {"bad": "broken"}
        assert not (tmp_path / "next.made").exists()

    def test_the_state_of_a_training_stays_in_the_view(self, tmp_path: Path) -> None:
        job = shell_job(tmp_path, "one", "true")
        progress = Progress(Console(file=io.StringIO()), [job], elsewhere=False)
        progress.set(job, "running")
        progress.set(job, "running", "40%, epoch 2")
        progress.set(job, "running", "running")
        assert progress.details[job] == "40%, epoch 2"

    def test_finished_jobs_are_skipped(self, tmp_path: Path) -> None:
        (tmp_path / "before.made").touch()
        failures, said = self.run([shell_job(tmp_path, "before", "exit 1")])
        assert failures == {}
        assert "before: done (before) [1 done" in said

    def test_slots_are_never_shared(self, tmp_path: Path) -> None:
        script = f"mkdir {tmp_path}/busy$SLOT && sleep 0.1 && rmdir {tmp_path}/busy$SLOT"
        failures, _ = self.run([shell_job(tmp_path, f"job{number}", script) for number in range(5)], slots=2)
        assert failures == {}

    def test_unexpected_errors_are_raised(self, tmp_path: Path) -> None:
        job = shell_job(tmp_path, "ours", "true")
        job.work = lambda slot, show: print(1 // 0)
        with pytest.raises(ZeroDivisionError):
            self.run([job])


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
    def made(self, recipe: Path) -> list[Planned]:
        write_table(recipe, "# Paper", HEADER, ROW, ROW.replace("K = 2", "absolute").replace("shaw-k2", "sinusoidal"))
        return rows(recipe)

    def test_one_seed_has_its_interval_and_several_their_spread(self, recipe: Path, made: list[Planned]) -> None:
        for planned, bleu in zip(made, (24.0, 26.3), strict=True):
            finish(planned.experiments[0], bleu)
        text = report("Paper", make_lines(made)).format("text")
        assert re.search(r"K = 2 +24.00 ± 0.50 +50.00 +25.80 +-1.80\n", text)
        assert "BLEU: sig:bleu\n" in text
        assert "missing" not in text
        assert "historical" not in text
        several = rows(recipe, "1,2,3")
        finish(several[0].experiments[1], 25.0)
        text = report("Paper", make_lines(several)).format("text")
        assert re.search(r"K = 2 +24.50 ± 0.71 +50.00 +25.80 +-1.30 +seed 3 not trained\n", text)

    def test_the_historical_score_is_shown_beside_sacrebleus(self, recipe: Path) -> None:
        write_table(recipe, "# Paper", HEADER, ROW.replace("sacrebleu", "historical"))
        made = rows(recipe)
        finish(made[0].experiments[0], 25.0, historical=26.0)
        lines = make_lines(made)
        text = report("Paper", lines).format("markdown")
        assert re.search(r"\| K = 2 \| +26.00 ± 0.50 \| 25.00 ± 0.50 \| +50.00 \| +25.8 \| +\+0.20 \|\n", text)
        assert "historical BLEU: sig:old\n" in text
        assert "SacreBLEU: sig:bleu\n" in text
        cells = next(csv.DictReader(report("Paper", lines).format("csv").splitlines()))
        assert (float(cells["score"]), float(cells["bleu"]), cells["historical_signature"]) == (26.0, 25.0, "sig:old")

    def test_sentences_of_each_length_are_scored_on_their_own(self, recipe: Path) -> None:
        sources = ["a b c", "a b c d", "a  b c d e", "a b c d e f"]
        references = ["v w x y z", "a b c d", "a b c d e", "a b c d e f"]
        hypotheses = ["v w x y z", "a b c d", "a b c e d", "a b c d x f"]
        write_table(recipe, f"{HEADER}\twords", f"{ROW}\t1-4 5- 9-")
        made = rows(recipe, "1,2")
        for experiment in made[0].experiments:
            finish(experiment, 24.0)
            for kind, lines in (("src", sources), ("ref", references), ("hyp", hypotheses)):
                experiment.test_file("test", kind).write_text("".join(f"{line}\n" for line in lines))
        one = rows(recipe)
        text = report("Paper", make_lines(one)).format("markdown")
        assert re.search(r"\| row +\| +BLEU \| +1-4 words \| +5- words \| +9- words \| +chrF \|", text)
        assert "test has 2 with 1-4, 2 with 5-, 0 with 9-.\n" in text
        (cells,) = csv.DictReader(report("Paper", make_lines(one)).format("csv").splitlines())
        assert float(cells["bleu 1-4"]) == pytest.approx(100)
        score = BLEU().corpus_score(hypotheses[2:], [references[2:]]).score
        assert float(cells["bleu 5-"]) == pytest.approx(score)
        assert float(cells["bleu_interval 5-"]) > 0
        assert (cells["sentences 5-"], cells["bleu 9-"]) == ("2", "")
        made[0].experiments[1].test_file("test", "hyp").write_text("".join(f"{line}\n" for line in references))
        (cells,) = csv.DictReader(report("Paper", make_lines(made)).format("csv").splitlines())
        assert float(cells["bleu 5-"]) == pytest.approx((score + 100) / 2)
        assert float(cells["bleu_spread 5-"]) == pytest.approx((100 - score) / 2**0.5)
        made[0].experiments[0].test_file("test", "src").write_text("a\n")
        with pytest.raises(RecipeError, match=r"test\.src has 1 lines, its references 4 and its translations 4"):
            make_lines(made)

    def test_the_lowercased_score_needs_its_setting(self, recipe: Path) -> None:
        write_table(recipe, "# Paper", HEADER, ROW.replace("sacrebleu\t25.8", "lowercase\t41.02"))
        made = rows(recipe)
        finish(made[0].experiments[0], 25.0, historical=41.0)  # of the other kind: not compared with the figure
        text = report("Paper", make_lines(made)).format("text")
        assert "41.0 " not in text.replace("41.02", "")
        assert "no lowercased BLEU: set 'tokenized = lowercase' in [score]" in text
        made = rows(recipe, overrides=("score.tokenized=lowercase",))
        finish(made[0].experiments[0], 25.0, historical=41.0)
        text = report("Paper", make_lines(made)).format("text")
        assert re.search(r"K = 2 +41.00 ± 0.50 +25.00 ± 0.50 +50.00 +41.02 +-0.02\n", text)
        assert "lowercased BLEU: sig:old\n" in text

    def test_the_reason_of_a_missing_score_is_shown(self, made: list[Planned]) -> None:
        first, second = (planned.experiments[0] for planned in made)
        assert [line.missing for line in make_lines(made)] == ["not trained", "not trained"]
        assert [line.missing for line in make_lines(made, [first.directory])] == ["failed", "not trained"]
        write_json(second.about, second.description())
        write_json(second.directory / "training.json", {})
        second.markers.set_done("train", second.train_inputs(), [second.directory / "training.json"])
        first.directory.mkdir(parents=True)
        first.train_log.touch()
        assert [line.missing for line in make_lines(made)] == ["training not finished", "not scored"]
        finish(first, 24.0)
        lines = make_lines(made)
        assert [line.score is None for line in lines] == [False, True]
        # Scores of other settings are not shown.
        first.markers.set_done("score", "other inputs", [])
        assert make_lines(made)[0].score is None

    def test_signatures_that_differ_are_warned_of(self, made: list[Planned]) -> None:
        for planned in made:
            finish(planned.experiments[0], 24.0)
        path = made[0].experiments[0].test_file("test", "sacrebleu.json")
        path.write_text(path.read_text().replace("sig:bleu", "sig:other"))
        experiment = made[0].experiments[0]
        experiment.markers.set_done("score", experiment.score_inputs(), [path])
        assert "Warning: the BLEU signatures differ" in report("Paper", make_lines(made)).format("text")


def command(recipe: Path, *options: str) -> list[str]:
    words = ["--recipe", recipe, "paper", "--jobs", "1", "--source", recipe.parent / "corpus"]
    return tiny.command("table", *words, *tiny.directories(recipe.parent), *options)


def run_table(recipe: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return forked.run_command(command(recipe, *options))


def kill_when(condition: Any, recipe: Path, *options: str) -> None:
    """Starts the command and kills it when the condition holds."""
    process = subprocess.Popen(command(recipe, *options), cwd=ROOT, stdout=subprocess.DEVNULL)
    wait_until(condition, process)
    process.kill()
    assert process.wait() == -signal.SIGKILL


def test_killed_while_training_and_called_again_it_ends_with_the_table(recipe: Path) -> None:
    write_table(recipe, "# Paper", HEADER, ROW, ROW.replace("shaw-k2", "bad").replace("K = 2", "broken"))
    good, bad = plan(recipe).experiments
    kill_when((good.checkpoints / "checkpoint1.pt").exists, recipe)
    process = run_table(recipe)
    assert process.returncode == 1
    assert "shaw-k2 en-de seed 1: resumes from its last checkpoint" in process.stdout
    error = process.stderr.strip()
    assert "\n" not in error
    assert error.startswith("Error: Training bad en-de seed 1 failed (exit status 1): ")
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
def test_killed_at_any_time_it_ends_with_the_table_of_an_uninterrupted_run(recipe: Path) -> None:
    write_table(recipe, "# Paper", HEADER, ROW, ROW.replace("shaw-k2", "sinusoidal").replace("K = 2", "absolute"))
    unbroken = recipe.parent / "unbroken"
    process = run_table(recipe, "--output-dir", str(unbroken), "--data-dir", str(unbroken / "data"))
    assert process.returncode == 0, process.stderr
    first, second = plan(recipe).experiments
    for condition in (
        (recipe.parent / "data/tiny/en-de/prepare.work").exists,
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


def test_interrupted_it_ends_its_jobs(recipe: Path, tmp_path: Path) -> None:
    write_table(recipe, "# Paper", HEADER, ROW)
    (experiment,) = plan(recipe).experiments
    with open(tmp_path / "said", "wb") as said:
        process = subprocess.Popen(command(recipe), cwd=ROOT, stdout=said)
    wait_until(experiment.train_log.exists, process)
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    assert "Interrupted: run again to resume." in (tmp_path / "said").read_text()
    assert not is_held(experiment.directory / ".lock")


def test_dry_run_prints_every_command_and_writes_nothing(recipe: Path) -> None:
    write_table(recipe, "# Paper", HEADER, ROW)
    before = sorted(recipe.parent.rglob("*"))
    words = command(recipe, "--seeds", "1,2", "--precision", "fp32", "--dry-run", "--", "--dropout", "0.2")[3:]
    result = CliRunner().invoke(group, words)
    assert result.exit_code == 0, result.output
    lines = [line for line in result.output.splitlines() if not line.startswith("#")]
    trainings = [line for line in lines if "fairseq_cli.train" in line]
    assert [line.split("--seed ")[1].split()[0] for line in trainings] == ["1", "2"]
    assert all("--dropout 0.2" in line for line in trainings)
    assert any("fairseq_cli.preprocess" in line for line in lines)
    assert sorted(recipe.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--seeds", "one"], "--seeds one"),
        (["--source", "nowhere"], "--source nowhere: there is no such directory"),
        (["--slurm", "time=1"], "--slurm needs --executor slurm"),
        (["--", "--lr", "1", "2"], "after --"),
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
