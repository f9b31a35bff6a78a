"""The whole pipeline as a user runs it: real fairseq, real SacreBLEU, on a tiny corpus; killed, resumed, misused."""

import json
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fairseq_posenc.checkpoints import load_checkpoint
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import file_hash, fingerprint, read_json, write_json
from posenc_experiments.base.subprocesses import run_command
from posenc_experiments.evaluation.results import seal
from posenc_experiments.evaluation.scores.score import ScoreStage
from posenc_experiments.evaluation.scores.translate import TranslateStage
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.jobs.job import Scheduler
from posenc_experiments.workflow import pipeline
from posenc_experiments.workflow.plan import EXPERIMENT_STAGES
from tests.experiments import tiny
from tests.waiting import kill_when


def test_a_command_that_fails_on_a_full_disk_says_so(recipe: Path, small_disk: Path) -> None:
    """Its log is on that disk, and may end before the error."""
    fill = ["sh", "-c", f"head -c 1000000 /dev/zero > {small_disk}/data"]
    with pytest.raises(
        RecipeError, match=rf"^Filling failed \(exit status 1\): .*; the disk of {small_disk} is full; the"
    ):
        run_command(tiny.make_run(recipe.parent), fill, small_disk / "log", "Filling")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run from download to table; its test set has an empty source line.

    The last three checkpoints, which are saved every 5 updates, are averaged; the recipe would keep one.
    """
    root = tmp_path_factory.mktemp("pipeline")
    settings = tiny.CONF.replace("average: 2", "average: 3\n  average-by: updates\n  length-penalty: wu\n  lenpen: 0.6")
    settings = settings.replace("\ntrain:\n", "\ntrain:\n  save-interval-updates: 5\n  keep-interval-updates: 1\n")
    conf, corpus = tiny.make_recipe(root, settings + "\nscore:\n  tokenized: split\n", lines=400)
    lines = (corpus / "test.en").read_bytes().split(b"\n")
    lines[2] = b""
    (corpus / "test.en").write_bytes(b"\n".join(lines))
    tiny.write_sources(conf.parent, corpus)
    process = tiny.run_recipe(root, "--source", corpus)
    assert (process.returncode, process.stderr) == (0, ""), process.stdout
    (root / "said").write_text(process.stdout)
    return root


@pytest.fixture(scope="module")
def directory(made: Path) -> Path:
    """The directory of its experiment."""
    return tiny.make_experiment(made).directory


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Experiment:
    """The same experiment in a copy of its results."""
    shutil.copytree(made / "output", tmp_path / "output")
    return tiny.make_experiment(made, output_dir=tmp_path / "output")


def test_a_run_writes_all_documented_files(made: Path, directory: Path) -> None:
    about = read_json(directory / "experiment.json")
    assert about.pop("fingerprint") == fingerprint(about["made_from"])
    assert about.pop("made_from")["training"]["clipping_distance"] == 2
    assert set(about.pop("environment")) == {"commit", "changed", "torch", "fairseq", "device"}
    assert about == {
        "corpus": "tiny",
        "pair": "en-de",
        "setup": None,
        "arch": "transformer_shaw_tiny",
        "encoding": "shaw",
        "flags": {"clipping-distance": 2},
        "seed": 1,
        "name": "shaw-k2",
    }
    training = read_json(directory / "training.json")
    weights = load_checkpoint(directory / "averaged.pt")["model"]
    assert training["updates"] > 0
    assert training["words_per_second"] > 0
    dictionaries = ((made / "data/tiny/en-de").glob(f"prepared-*/binarized/dict.{side}.txt") for side in ("en", "de"))
    assert training["vocabulary"] == [file_hash(path) for (path,) in dictionaries]
    assert 0 < training["parameters"] <= sum(tensor.numel() for tensor in weights.values())
    script = (directory / "command.sh").read_text()
    for words in ("OMP_NUM_THREADS=1", "--arch transformer_shaw_tiny", "--update-freq 2", "--seed 1"):
        assert words in script
    assert "--required-batch-size-multiple 1" in script
    script = (directory / "test.generate.sh").read_text()
    assert script.startswith("#!/usr/bin/env bash\nset -euo pipefail\nexport OMP_NUM_THREADS=1\nexec ")
    for words in ("fairseq_cli.generate", "--task translation_gnmt_penalty", "--lenpen 0.6", "--gen-subset test "):
        assert words in script
    assert (directory / "test.generate.sh").stat().st_mode & 0o111
    corpus = made / "corpus"
    assert (directory / "test.src").read_bytes() == (corpus / "test.en").read_bytes()
    assert (directory / "test.ref").read_bytes() == (corpus / "test.de").read_bytes()


def test_the_last_checkpoints_by_updates_are_kept_and_averaged(directory: Path) -> None:
    kept = sorted(
        (int(path.stem.split("_")[2]), path) for path in (directory / "checkpoints").glob("checkpoint_*_*.pt")
    )
    assert len(kept) == 3
    assert kept[0][0] > 5  # earlier ones were deleted
    states = [load_checkpoint(path)["model"] for _, path in kept]
    average = load_checkpoint(directory / "averaged.pt")["model"]
    name = "encoder.layers.0.fc1.weight"
    torch.testing.assert_close(average[name], sum(state[name] for state in states) / 3)
    assert not torch.equal(average[name], states[-1][name])


def test_every_source_line_has_a_translation_and_empty_lines_an_empty_one(directory: Path) -> None:
    lines = (directory / "test.hyp").read_text().split("\n")
    assert len(lines) == 21  # 20 lines, and the empty text after the last newline
    assert lines[2] == lines[20] == ""
    assert all(lines[:2])
    assert all(lines[3:20])


def test_the_scores_are_those_of_sacrebleus_command(made: Path, directory: Path) -> None:
    words = ["test.ref", "-i", "test.hyp", "-m", "bleu", "chrf", "--confidence", "-f", "json", "-w", "2"]
    process = subprocess.run(
        [sys.executable, "-m", "sacrebleu", *words], cwd=directory, stdout=subprocess.PIPE, check=True
    )
    kinds = {"sources": "src", "hypotheses": "hyp", "references": "ref"}
    made_from: dict[str, object] = {name: file_hash(directory / f"test.{kind}") for name, kind in kinds.items()}
    made_from["translation"] = {"average": 3, "average_by": "updates", "beam": 2, "length_penalty": "wu", "lenpen": 0.6}
    rows = [{**row, **made_from} for row in json.loads(process.stdout)]
    assert read_json(directory / "test.sacrebleu.json") == [{**row, "seal": seal(row)} for row in rows]
    said = (made / "said").read_text()
    assert "shaw-k2" in said
    historical = read_json(directory / "test.historical.json")[0]
    assert historical["name"] == "tokenized BLEU (historical)"
    assert f"tok. BLEU: {historical['signature']}" in said
    assert read_json(directory / "test.sacrebleu.json")[0]["signature"] in said
    assert f"Plot: {made}/output/tiny/en-de/compare.png" in said
    assert (made / "output/tiny/en-de/compare.png").is_file()


def test_a_second_run_does_nothing_again(made: Path) -> None:
    def state() -> dict[Path, int]:
        kept = [path for path in made.rglob("*") if path.is_file() and not path.name.startswith("compare.")]
        return {path: path.stat().st_mtime_ns for path in kept}

    before = state()
    # The downloaded and prepared data suffices, without --source.
    process = tiny.run_recipe(made)
    assert process.returncode == 0, process.stderr
    assert state() == before
    assert "en-de tiny shaw-k2 seed 1: done before" in process.stdout
    assert "starts" not in process.stdout


def test_a_precision_that_needs_a_gpu_is_refused_on_a_cpu(made: Path) -> None:
    for options in (["--precision", "fp16"], ["--", "--fp16"]):
        process = tiny.run_recipe(made, *options)
        assert process.returncode == 1
        assert "shaw-k2 en-de seed 1: --fp16 needs a GPU, and this call trains on a CPU" in process.stderr
        assert tiny.run_recipe(made, "--dry-run", *options).returncode == 0


def test_a_training_is_not_taken_for_one_with_other_batches(made: Path, directory: Path) -> None:
    before = (directory / "done.json").read_bytes()
    process = tiny.run_recipe(made, "--", "--max-tokens", "150")
    assert process.returncode == 1
    assert process.stderr.count("\n") == 1
    assert "was trained in batches of 400 tokens" in process.stderr
    assert "this call asks for 1 x --max-tokens 150 --update-freq 3" in process.stderr
    # 2 x 100 tokens make the same batch, and other stages do not read it.
    for options in (["--", "--max-tokens", "100"], ["--stages", "translate,score", "--", "--max-tokens", "150"]):
        assert tiny.run_recipe(made, *options).returncode == 0
    assert (directory / "done.json").read_bytes() == before


def test_killed_in_the_middle_of_training_it_resumes_to_the_same_weights(
    made: Path, directory: Path, tmp_path: Path
) -> None:
    options = ["--output-dir", tmp_path, "--stages", "train,average"]
    killed = tiny.make_experiment(made, output_dir=tmp_path)
    kill_when((killed.checkpoints / "checkpoint1.pt").exists, tiny.recipe_command(made, *options))
    assert not (killed.directory / "done.json").exists()
    # A kill while fairseq copies checkpoint_last.pt.
    killed.last_checkpoint.write_bytes(b"PK")
    left = killed.directory / ".averaged.pt.0.tmp"  # by a kill while the average is written
    left.touch()

    again = tiny.run_recipe(made, *options)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "resumes from its last checkpoint" in again.stdout
    assert killed.train_log.read_text().count("Loaded checkpoint") == 1
    assert not left.exists()
    unbroken, resumed = (load_checkpoint(path / "averaged.pt")["model"] for path in (directory, killed.directory))
    assert unbroken.keys() == resumed.keys()
    for name, tensor in unbroken.items():
        assert torch.equal(tensor, resumed[name]), name
    assert read_json(killed.summary)["updates"] == read_json(directory / "training.json")["updates"]


@pytest.mark.parametrize("edited", ["test.hyp", "test.sacrebleu.json", "test.hyp deleted"])
def test_what_was_edited_is_scored_again(copied: Experiment, edited: str) -> None:
    (copied.directory / "test.COMET.scores").write_text("damaged, by another tool\n")
    assert ScoreStage().is_done(copied)
    if edited == "test.hyp deleted":
        copied.test_file("test", "hyp").unlink()
        assert not ScoreStage().is_done(copied)
        return
    scores = copied.test_file("test", "sacrebleu.json")
    before, path = read_json(scores), copied.directory / edited
    text = path.read_bytes()
    place = text.index(b'"score": ') + len(b'"score": ') if path == scores else 0
    path.write_bytes(text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :])
    assert not ScoreStage().is_done(copied)
    ScoreStage().run(copied)
    after = read_json(scores)
    assert after[0]["hypotheses"] == file_hash(copied.test_file("test", "hyp"))
    assert (after == before) == (path == scores)


def test_a_translation_that_fails_loses_nothing(copied: Experiment) -> None:
    """Scores of other tools and the search of the earlier translations stay."""
    copied.test_file("test", "MyMetric.scores").write_text("0.5\n")
    before = {path: path.read_bytes() for path in copied.directory.glob("test.*") if path.suffix != ".log"}
    flags = copied.run.recipe.generate.flags | {"beam": "0"}  # fairseq fails with it
    recipe = replace(copied.run.recipe, generate=replace(copied.run.recipe.generate, flags=flags))
    failing = replace(copied, run=replace(copied.run, recipe=recipe))
    with pytest.raises(RecipeError, match="Translating test with shaw-k2"):
        TranslateStage().make(failing, ())
    assert {path: path.read_bytes() for path in before} == before
    TranslateStage().make(copied, ())
    assert not copied.test_file("test", "MyMetric.scores").exists()
    hypotheses = copied.test_file("test", "hyp")
    assert hypotheses.read_bytes() == before[hypotheses]


def test_other_dictionaries_than_those_of_the_training_are_refused(copied: Experiment) -> None:
    """The text was prepared again, on a machine where SentencePiece learned other subwords."""
    write_json(copied.summary, read_json(copied.summary) | {"vocabulary": ["another", "another"]})
    with pytest.raises(
        RecipeError, match="has other dictionaries than the training of shaw-k2 en-de seed 1: train again"
    ):
        TranslateStage().make(copied, ())
    assert copied.test_file("test", "hyp").is_file()


def test_dry_run_prints_every_command_and_writes_nothing(recipe: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    options = ["--source", tmp_path / "corpus", "--dry-run", "--experiments", "shaw-k2,sinusoidal"]
    process = tiny.run_recipe(tmp_path, *options, "--seeds", "1,2")
    assert process.returncode == 0
    lines = process.stdout.split("\n")
    counts = {"fairseq_cli.preprocess": 1, "fairseq_cli.train": 4, " average ": 4}
    counts |= {"fairseq_cli.generate": 4, " compare ": 1, "# copy ": 6, "# SacreBLEU's ": 4}
    assert {word: sum(word in line for line in lines) for word in counts} == counts
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("stage", EXPERIMENT_STAGES)
def test_a_stage_names_the_stage_that_must_run_before(recipe: Path, tmp_path: Path, stage: str) -> None:
    with pytest.raises(RecipeError, match=r"run the stages? (download\.\.prepare|train|average|translate)\."):
        EXPERIMENT_STAGES[stage].run(tiny.make_experiment(tmp_path))
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_is_swallowed_ends_the_next_command(recipe: Path, tmp_path: Path, number: int) -> None:
    run = tiny.make_run(tmp_path)

    def work() -> None:
        with pipeline._interruptible(run, Scheduler(run)):
            with suppress(KeyboardInterrupt):  # as the import of a compiled module may
                signal.raise_signal(number)
            run_command(run, ["sleep", "60"], tmp_path / "log", "sleep")

    # A background job of a shell ignores SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(SystemExit) as ended:
            work()
        assert ended.value.code == 128 + number
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGINT, before)
