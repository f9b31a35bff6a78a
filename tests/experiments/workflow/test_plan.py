"""The plan of a table: its data and trainings, each once."""

import pickle
import subprocess
import sys
from pathlib import Path

from tests.experiments.tables import HEADER, ROW, plan, write_table
from tests.experiments.tiny import CONF


def test_the_same_setting_is_trained_once(recipe: Path) -> None:
    write_table(recipe, HEADER, ROW, ROW.replace("K = 2", "again"), ROW.replace("en-de", "de-en"))
    made = plan(recipe, "1,2")
    assert [job.title for job in [*made.data, *made.experiment_jobs.values()]] == [
        *("download en-de", "prepare en-de", "download de-en", "prepare de-en"),
        *(f"{pair} tiny shaw-k2 seed {seed}" for pair in ("en-de", "de-en") for seed in (1, 2)),
    ]
    write_table(recipe, HEADER, ROW, name="other")
    (other,), first = plan(recipe, name="other").experiment_jobs.values(), next(iter(made.experiment_jobs.values()))
    assert other.directory == first.directory


def test_a_job_does_the_same_in_another_process(recipe: Path) -> None:
    write_table(recipe, HEADER, ROW)
    made = plan(recipe, cpus=3, overrides=("train.max-epoch=5",), extra=("--dropout", "0.1"), dry_run=True)
    (job,) = made.experiment_jobs.values()
    words = [sys.executable, "-m", "posenc_experiments.jobs.work"]
    said = subprocess.run(words, input=pickle.dumps(job.work), capture_output=True, check=True).stdout.decode()
    assert "--max-epoch 5" in said
    assert "--dropout 0.1" in said
    assert str(made.experiments[0].directory) in said
    assert "fairseq_cli.preprocess" not in said


def test_recipes_with_other_settings_have_directories_of_their_own(recipe: Path) -> None:
    changes = (("lr: 1e-2", "lr: 1e-3"), ("subwords: none", "subwords: none\n  max-tokens: 7"))
    rows = [ROW]
    for number, (old, new) in enumerate(changes):
        (recipe / f"other{number}.yaml").write_text(CONF.replace(old, new))
        rows.append(ROW.replace("\ttiny", f"\tother{number}").replace("K = 2", str(number)))
    write_table(recipe, HEADER, *rows)
    made = plan(recipe)
    assert len({one.directory for one in made.experiments}) == len(made.experiment_jobs) == 3
    assert [job.title for job in made.data] == ["download en-de", "prepare en-de"] * 2


def test_what_is_continued_runs_first(recipe: Path) -> None:
    row = "  first: shaw --finetune-from-model sinusoidal\n"
    (recipe / "tiny.yaml").write_text(CONF + row)
    write_table(recipe, HEADER, ROW.replace("shaw-k2", "first"), ROW.replace("shaw-k2", "sinusoidal").replace("K", "J"))
    titles = [job.title for job in plan(recipe).to_do]
    assert titles == ["download en-de", "prepare en-de", "en-de tiny sinusoidal seed 1", "en-de tiny first seed 1"]
