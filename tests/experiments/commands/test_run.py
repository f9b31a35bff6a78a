"""`fairseq-posenc run` and the command line that all commands share."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result

from tests.experiments.tiny import directories, make_recipe, recipe_command, run_here

ROOT = Path(__file__).resolve().parents[3]


def run(tmp_path: Path, *options: object) -> Result:
    """A call with the tiny recipe on one CPU; --gpus may be given again."""
    return run_here("run", "--conf", make_recipe(tmp_path)[0], "--gpus", "0", *directories(tmp_path), *options)


def test_the_dry_run_of_another_node_prints_only_its_trainings(tmp_path: Path) -> None:
    result = run(tmp_path, "--nodes", "2", "--node-rank", "1", "--rendezvous", "host:1", "--dry-run")
    assert result.exit_code == 0, result.output
    (command,) = [line for line in result.stdout.splitlines() if " -m " in line]
    assert "--node_rank 1" in command
    assert "fairseq_cli.train" in command
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
    result = run(tmp_path, "--gpus", "4", "--dry-run", *options)
    assert result.exit_code == 0, result.output
    assert f": with CUDA_VISIBLE_DEVICES={slots}\n" in result.stdout
    assert re.findall(r"fairseq_cli\.train .*--distributed-world-size (\d+)", result.stdout) == [str(processes)]


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
        (["--", "--reset-optimizer"], "the flags after --: --reset-optimizer is set by the pipeline"),
    ],
)
def test_flags_of_two_values_or_of_the_pipeline_are_refused(tmp_path: Path, options: list[str], message: str) -> None:
    result = run(tmp_path, "--dry-run", *options)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: " + message.format(conf=tmp_path / "recipe" / "tiny.yaml"))
    assert "fairseq_cli" not in result.stdout


def test_a_value_may_be_given_twice_and_override_the_conf(tmp_path: Path) -> None:
    """Nor is the first flag after -- taken for a recipe."""
    given = ["--set", "model.clipping-distance=2", "--set", "train.lr=0.02", "--", "--lr=2e-2", "--max-epoch", "5"]
    result = run(tmp_path, "--dry-run", *given)
    assert result.exit_code == 0, result.output
    for words in ("--clipping-distance 2 ", "--lr 2e-2 ", "--max-epoch 5 "):
        assert words in result.stdout


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        (["--nodes", "2", "--rendezvous", "host:1", "--executor", "slurm"], "--nodes: jobs .*/slurm.sbatch"),
        (["--nodes", "2"], "--nodes 2: give a --node-rank from 0 to 1, and node 0's address, such as --rendezvous"),
        (["--nodes", "2", "--node-rank", "2", "--rendezvous", "a:1"], "--nodes 2: give a --node-rank from 0 to 1"),
        (["--wandb", "mine"], "--wandb mine: the package wandb is not installed; run `pip install wandb` and log in."),
        (["--slurm", "time=1"], "--slurm needs --executor slurm"),
        (["--set", "train.lr"], "--set train.lr: write SECTION.KEY=VALUE"),
        (["--pair", "en-fr"], "--pair en-fr: .*en-de, de-en"),
        (["--stages", "score..train"], "--stages score..train: .*first..last"),
        (["--stages", "tranlate"], r"'tranlate' is not a stage \(did you mean translate\?\); .*translate"),
        (["--set", "trian.lr=1"], r"--set trian.lr: trian is not a section \(did you mean train\?\); the sections are"),
        (["--data-dir", "da,ta"], "--data-dir .*da,ta: fairseq would split this path at ','; name another"),
        (["--output-dir", "out:put"], "--output-dir .*out:put: fairseq would split this path at ':'; name another"),
        (["--output-dir", ""], "--output-dir is empty: name a directory"),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_one_sentence(
    tmp_path: Path, options: list[str], refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    monkeypatch.chdir(tmp_path)
    result = run(tmp_path, *options)
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.match(f"Error: (--stages .*)?{refusal}", result.stderr)
    assert result.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "recipe"]


def test_a_missing_package_is_named_in_one_sentence() -> None:
    code = "import sys; sys.modules['rich'] = None; sys.argv[1:] = ['run', '--help']; "
    code += "from posenc_experiments.cli import main; main()"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert process.returncode == 1
    assert process.stderr == (
        "Error: the package rich is not installed: run pip install '.[recipes]' in the repository.\n"
    )


def test_a_directory_without_a_recipe_is_named(tmp_path: Path) -> None:
    for name in ("run", "table"):
        result = run_here(name, tmp_path / "missing", "--dry-run")
        assert result.exit_code == 1
        assert result.stderr.startswith(f"Error: {tmp_path / 'missing'} is no recipe and no directory of one; the rec")
        assert result.stderr.endswith(" are iwslt14, kftt, multi30k, own, quickstart, wmt14, wmt18.\n")
    result = run_here("run", "--dry-run")
    assert result.stderr == "Error: Name a recipe, such as quickstart, or a YAML file with --conf.\n"


def test_a_terminal_without_unicode_is_written_to(tmp_path: Path) -> None:
    make_recipe(tmp_path)
    words = recipe_command(tmp_path, "--output-dir", tmp_path / "±", "--stages", "train", "--dry-run")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}
    process = subprocess.run(words, capture_output=True, encoding="ascii", env=environment, check=True)
    assert "\\xb1/tiny/en-de" in process.stdout
