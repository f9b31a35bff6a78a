"""`fairseq-posenc run` and the command line that all commands share."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from posenc_experiments.cli import group
from tests.experiments.tiny import command, directories, make_recipe

ROOT = Path(__file__).resolve().parents[3]


def test_the_dry_run_of_another_node_prints_only_its_trainings(tmp_path: Path) -> None:
    conf, _ = make_recipe(tmp_path)
    words = ["--conf", conf, "--gpus", "0", *directories(tmp_path)]
    words += ["--nodes", "2", "--node-rank", "1", "--rendezvous", "host:1", "--dry-run"]
    result = CliRunner().invoke(group, ["run", *map(str, words)])
    assert result.exit_code == 0, result.output
    commands = [line for line in result.stdout.splitlines() if " -m " in line]
    assert len(commands) == 1
    assert "--node_rank 1" in commands[0]
    assert "fairseq_cli.train" in commands[0]
    assert "; stages train\n" in result.stdout


@pytest.mark.parametrize(
    ("options", "slots", "processes"),
    [
        ([], "0,1 or 2,3", 2),  # CONF's batches have max-tokens for two
        (["--gpus-per-job", "1"], "0 or 1 or 2 or 3", 1),
        (["--set", "train.max-tokens=400"], "0 or 1 or 2 or 3", 1),
    ],
)
def test_a_training_has_as_many_gpus_as_its_batch_can_be_divided_among(
    tmp_path: Path, options: list[str], slots: str, processes: int
) -> None:
    conf, _ = make_recipe(tmp_path)
    words = ["--conf", conf, "--gpus", "4", *directories(tmp_path)]
    result = CliRunner().invoke(group, ["run", *map(str, words), "--dry-run", *options])
    assert result.exit_code == 0, result.output
    assert f": with CUDA_VISIBLE_DEVICES={slots}\n" in result.stdout
    assert re.findall(r"fairseq_cli\.train .*--distributed-world-size (\d+)", result.stdout) == [str(processes)]


def dry_run(tmp_path: Path, *options: str) -> Result:
    words = ["--conf", make_recipe(tmp_path)[0], "--gpus", "0", *directories(tmp_path), "--dry-run"]
    return CliRunner().invoke(group, ["run", *map(str, words), *options])


ROW = "{conf}, experiments.shaw-k2"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "model.clipping-distance=8"], f"--clipping-distance is 2 by {ROW}, and 8 by --set: leave one out."),
        (["--", "--clipping-distance=8"], f"--clipping-distance is 2 by {ROW}, and 8 by the flags after --: leave"),
        (
            ["--experiments", "shaw --dropout 0.1,0.2", "--set", "model.dropout=0.1"],
            "--dropout is 0.2 by --experiments 'shaw --dropout 0.2', and 0.1 by --set: leave one out.",
        ),
        (
            ["--set", "train.encoder-layers=3"],
            "--set train.encoder-layers: is set by {conf}, model.encoder-layers, too: leave one out.",
        ),
        (
            ["--", "--batch-size", "8", "--max-sentences", "9"],
            "--batch-size after --: --batch-size and --max-sentences are the same flag; leave one out",
        ),
        (["--", "--reset-optimizer"], "the flags after --: --reset-optimizer is set by the pipeline"),
        (["--set", "train.no-save-optimizer-state="], "--set train.no-save-optimizer-state: is set by the pipeline"),
        (["--", "--local_rank", "1"], "the flags after --: --local_rank is set by the pipeline"),
    ],
)
def test_flags_of_two_values_or_of_the_pipeline_are_refused(tmp_path: Path, options: list[str], message: str) -> None:
    result = dry_run(tmp_path, *options)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: " + message.format(conf=tmp_path / "recipe" / "tiny.yaml"))
    assert "fairseq_cli" not in result.stdout


def test_a_value_may_be_given_twice_and_override_the_conf(tmp_path: Path) -> None:
    given = ["--set", "model.clipping-distance=2", "--set", "train.lr=0.02", "--", "--lr=2e-2", "--max-epoch", "5"]
    result = dry_run(tmp_path, *given)
    assert result.exit_code == 0, result.output
    for words in ("--clipping-distance 2 ", "--lr 2e-2 ", "--max-epoch 5 "):
        assert words in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--nodes", "2", "--rendezvous", "host:1", "--executor", "slurm"],
            "--nodes: jobs of --executor slurm have one node each; submit recipes/common/slurm.sbatch.",
        ),
        (["--wandb", "mine"], "--wandb mine: the package wandb is not installed; run `pip install wandb` and log in."),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    conf, _ = make_recipe(tmp_path)
    result = CliRunner().invoke(group, ["run", "--conf", str(conf), "--gpus", "0", *options])
    assert (result.exit_code, result.output) == (1, f"Error: {message}\n")


def test_a_missing_package_is_named_in_one_sentence() -> None:
    code = "import sys; sys.modules['rich'] = None; sys.argv[1:] = ['run', '--help']; "
    code += "from posenc_experiments.cli import main; main()"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert process.returncode == 1
    assert process.stderr == (
        "Error: the package rich is not installed: run pip install '.[recipes]' in the repository.\n"
    )


@pytest.mark.parametrize(
    ("option", "path", "words_of_error"),
    [
        ("--data-dir", "da,ta", "fairseq would split this path at ','; name another"),
        ("--output-dir", "out:put", "fairseq would split this path at ':'; name another"),
    ],
)
def test_paths_that_cannot_be_passed_on_are_refused(
    option: str, path: str, words_of_error: str, tmp_path: Path
) -> None:
    conf, _ = make_recipe(tmp_path)
    words = ["run", "--conf", conf, "--gpus", "0", *directories(tmp_path), option, tmp_path / path]
    result = CliRunner().invoke(group, list(map(str, words)))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {option} ")
    assert result.stderr.endswith(f"{words_of_error}.\n")
    assert not (tmp_path / path).exists()


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_directory_without_a_recipe_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = CliRunner().invoke(group, ["run", "--recipe", str(tmp_path / name), "--dry-run"])
    assert result.exit_code == 1
    assert (
        result.stderr
        == f"Error: --recipe {tmp_path / name}: there is no recipe; name a directory such as recipes/quickstart.\n"
    )


def test_a_terminal_without_unicode_is_written_to(tmp_path: Path) -> None:
    conf, _ = make_recipe(tmp_path)
    words = command("run", "--conf", conf, *directories(tmp_path, tmp_path / "±"), "--stages", "train", "--dry-run")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}
    process = subprocess.run(words, capture_output=True, encoding="ascii", env=environment, check=True)
    assert "\\xb1/tiny/en-de" in process.stdout
