"""The plan of a table: its data and trainings, each once."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.cli import group
from tests.experiments.tables import HEADER, ROW, plan, write_table
from tests.experiments.tiny import CONF


def test_the_same_setting_is_trained_once(recipe: Path) -> None:
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


def test_a_job_is_a_command_line_of_the_pipeline(recipe: Path) -> None:
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


@pytest.mark.parametrize(("old", "new"), [("lr: 1e-2", "lr: 1e-3"), ("beam: 2", "beam: 3")])
def test_confs_whose_experiments_have_one_directory_are_refused(recipe: Path, old: str, new: str) -> None:
    (recipe / "other.yaml").write_text(CONF.replace(old, new))
    write_table(recipe, HEADER, ROW, ROW.replace("\ttiny", "\tother").replace("K = 2", "x"))
    with pytest.raises(RecipeError, match=r"tiny\.yaml, .*other\.yaml, .*different experiments with one directory"):
        plan(recipe)
    other = CONF.replace(old, new).replace("size: tiny", "size: tiny\n  setup: other")
    (recipe / "other.yaml").write_text(other)
    assert len(plan(recipe).trainings) == 2


def test_experiments_whose_flags_collide_on_disk_are_jobs_of_their_own(recipe: Path) -> None:
    rows = "  a: shaw --finetune-from-model m/a.pt\n  b: shaw --finetune-from-model m_a.pt\n"
    (recipe / "tiny.yaml").write_text(CONF + rows)
    write_table(recipe, HEADER, ROW.replace("shaw-k2", "a"), ROW.replace("shaw-k2", "b").replace("K = 2", "x"))
    made = plan(recipe)
    assert len({job.directory for job in made.trainings.values()}) == len(made.experiments) == 2


def test_confs_that_prepare_one_pair_differently_are_refused(recipe: Path) -> None:
    (recipe / "other.yaml").write_text(CONF.replace("\nprepare:", "\nprepare:\n  max-tokens: 7"))
    write_table(recipe, HEADER, ROW, ROW.replace("\ttiny", "\tother").replace("K = 2", "x"))
    with pytest.raises(RecipeError, match=r"^tiny\.yaml and other\.yaml prepare en-de differently: "):
        plan(recipe)
