"""A finished experiment stays done: its fingerprint changes only if its result does.

`frozen/` contains its files as the training wrote them; see the README there.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fairseq
import pytest

import fairseq_posenc
from fairseq_posenc.encodings import ENCODINGS, Facts
from posenc_experiments.base.markers import fingerprint, read_json
from posenc_experiments.base.run import Run
from posenc_experiments.base.settings import read_recipe
from posenc_experiments.data import download
from posenc_experiments.experiment import identity
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.workflow.plan import make_plan
from tests import forked
from tests.experiments.tiny import command, directories, make_run

ROOT = Path(__file__).resolve().parents[3]
FROZEN = Path(__file__).parent / "frozen"
SETTING = "frozen/en-de/transformer_shaw_tiny-clipping-distance-2/seed1"
FINGERPRINT = "57dbd2fe61a2aabbf4baf0c38ba29767adb3848cd0c51df106460fe46e7568b5"
STAGES = ("train", "average", "translate")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the experiment in another directory than that of its training."""
    return Path(shutil.copytree(FROZEN, tmp_path / "copy"))


def files(directory: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}


def test_nothing_is_trained_or_translated_again(copy: Path) -> None:
    trained = [path for path in files(copy / "output") if "score" not in path.name and "sacrebleu" not in path.name]
    before = {path: time for path, time in files(copy / "output").items() if path in trained}
    options = ["--conf", copy / "recipe/frozen.yaml", "--stages", "download,train,average,translate,score,compare"]
    process = forked.run_command(command("run", *options, *directories(copy)))
    assert process.returncode == 0, process.stdout + process.stderr
    assert "train 1 of 1: shaw-k2 en-de seed 1: done before" in process.stdout
    after = files(copy / "output")
    assert {path: after[path] for path in before} == before
    assert not list(copy.rglob("superseded*")) + list(copy.rglob("train.log")) + list(copy.rglob("*.generate.log"))
    about = read_json(copy / "output" / SETTING / "experiment.json")
    assert (about["fingerprint"], fingerprint(about["made_from"])) == (FINGERPRINT, FINGERPRINT)


def experiment(copy: Path, overrides: tuple[str, ...] = (), **options: Any) -> Experiment:
    """The experiment of the current recipe, with its text generated."""
    run: Run = make_run(copy, copy / "recipe/frozen.yaml", None, **options)
    run = replace(run, recipe=read_recipe(copy / "recipe/frozen.yaml", overrides))
    download.download(run)
    return Experiment(run, "shaw-k2", 1)


def done(one: Experiment) -> tuple[str, ...]:
    """The stages that are still done."""
    there = replace(one.run, extra={}, recipe=replace(one.run.recipe, origins={}))
    markers = Experiment(there, one.name, one.seed).markers
    return tuple(stage for stage in STAGES if markers.is_done(stage, getattr(one, f"{stage}_inputs")()))


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(copy: Path) -> None:
        path = copy / "recipe" / name
        assert path.read_text().count(old) == 1
        path.write_text(path.read_text().replace(old, new))

    return change


def conf(old: str, new: str) -> Callable[[Path], None]:
    return edit("frozen.yaml", old, new)


@pytest.mark.parametrize(
    "change",
    [
        edit("make.py", "def main", "# A comment.\ndef main"),
        edit("make.py", '"other": 6', '"other": 7'),  # a split that is not used
        lambda copy: shutil.copy(FROZEN / "recipe/make.py", copy / "recipe/helper.py"),
        conf("lr: 1e-2", "lr: 0.010\n  dropout: 0.10\n  clip-norm: 0\n  lr-scheduler: fixed"),
        conf("lr: 1e-2", "lr: 1e-2\n  update-epoch-batch-itr: True"),
        conf("(0.9, 0.98)", "(0.90,.98)"),
        conf("\ntrain:", "\n  max-source-positions: 1024\n  input-positions: none\n  position-sharing: none\n\ntrain:"),
        conf("subwords: none", "subwords: none\n  max-tokens: 250\n  drop-identical: false\n  vocabulary: 99"),
        conf("subwords: none", "subwords: none\n  train-max-words: 0\n  train-min-words: 0"),
        conf("beam: 2", "beam: 2\n  lenpen: 1.0\n  max-len-b: 200\n  length-penalty: power\n  average-by: epochs"),
        conf("num-workers: 0", "fp16:\n  no-progress-bar:\n  keep-last-epochs: 2\n  save-interval: 1"),
        conf("num-workers: 0", "max-tokens-valid: 50"),
        conf("max-tokens: 100", "max-tokens: 50"),
        conf("\nexperiments:", "\nexperiments:\n  other: alibi"),
    ],
)
def test_changes_without_effect_on_results_keep_all_stages_done(copy: Path, change: Callable[[Path], None]) -> None:
    change(copy)
    one = experiment(copy)
    assert fingerprint(one.made_from()) == FINGERPRINT
    assert done(one) == STAGES


@pytest.mark.parametrize(
    "options",
    [
        {"extra": {"attention-backend": "eager"}},
        {"extra": {"max-tokens": "40", "bf16": "", "checkpoint-activations": "", "distributed-port": "1"}},
        {"extra": {"log-positions": "50"}},
        {"extra": {"use-old-adam": "", "fp16-adam-stats": ""}},
        {"gpus": 2, "precision": "fp16"},
        {"cpu_processes": 4, "extra": {"max-tokens": "25"}},
        {"nodes": 2, "rendezvous": "host0:1", "wandb": "project", "tensorboard": True},
    ],
)
def test_hardware_changes_neither_fingerprint_nor_directory(copy: Path, options: dict[str, Any]) -> None:
    one = experiment(copy, **options)
    assert one.directory == copy / "output" / SETTING
    assert fingerprint(one.made_from()) == FINGERPRINT
    assert done(one) == STAGES


def test_another_test_set_keeps_the_training(copy: Path) -> None:
    conf("tests: test", "tests: test other")(copy)
    assert done(experiment(copy)) == ("train", "average")


def test_another_commit_and_other_libraries_change_nothing(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posenc_experiments.experiment.identity._git", lambda *words: "abc")
    monkeypatch.setattr("torch.__version__", "99.0")
    one = experiment(copy)
    assert identity.environment() == {"commit": "abc", "changed": True, "torch": "99.0", "fairseq": fairseq.__version__}
    assert done(one) == STAGES


def test_initial_values_of_another_encoding_change_nothing(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = ENCODINGS["t5"].facts
    monkeypatch.setattr(ENCODINGS["t5"], "facts", replace(facts, initial_values=facts.initial_values + 1))
    assert done(experiment(copy)) == STAGES


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        (conf("lr: 1e-2", "lr: 3e-2"), ("training", "lr"), [0.03]),
        (conf("lr: 1e-2", "lr: 1e-2\n  weight-decay: 1e-4"), ("training", "weight_decay"), 0.0001),
        (conf("optimizer: adam", "optimizer: adam\n  lr-scheduler: inverse_sqrt"), ("training", "lr_scheduler"), None),
        (conf("batch-tokens: 200", "batch-tokens: 300"), ("batch_tokens",), 300),
        (conf("  batch-tokens: 200\n", ""), ("training", "max_tokens"), 100),
        (conf("subwords: none", "subwords: none\n  max-tokens: 9"), ("prepare", "max_tokens"), 9),
        (conf("subwords: none", "subwords: none\n  train-max-words: 9"), ("prepare", "train_max_words"), 9),
        (conf("\ntrain:", "\n  segment-separator: s3\n\ntrain:"), ("positions", "segment_separator"), "s3"),
        (conf("\ntrain:", "\ntrain:\n  save-interval: 2"), ("training", "save_interval"), 2),
        (edit("make.py", "number: 1\n", "number: 2\n"), ("data", "train"), None),
        (edit("make.py", 'f"s{word}" for word in words', 'f"s{word % 7}" for word in words'), ("data", "valid"), None),
    ],
)
def test_changes_with_effect_on_results_make_another_experiment(
    copy: Path, change: Callable[[Path], None], path: tuple[str, ...], value: Any
) -> None:
    change(copy)
    one = experiment(copy)
    assert fingerprint(one.made_from()) != FINGERPRINT
    assert done(one) == ()
    found, was = one.made_from(), read_json(FROZEN / "output" / SETTING / "experiment.json")["made_from"]
    for key in path:
        found, was = found[key], was.get(key)
    assert found != was
    assert value is None or found == value


@pytest.mark.parametrize("flag", ["save-interval-updates", "skip-invalid-size-inputs-valid-test"])
def test_settings_of_validation_count_if_the_training_depends_on_it(copy: Path, flag: str) -> None:
    with_it = {flag: "5" if flag == "save-interval-updates" else ""}
    assert experiment(copy, extra=with_it).made_from() == experiment(copy).made_from()
    patient = [experiment(copy, extra={"patience": "3", **extra}).made_from() for extra in ({}, with_it)]
    assert patient[0] != patient[1]


def test_translations_depend_on_the_content_of_a_language_model(copy: Path, tmp_path: Path) -> None:
    found = []
    for name, content in (("a.pt", b"1"), ("b.pt", b"1"), ("a.pt", b"22")):
        (tmp_path / name).write_bytes(content)
        recipe = read_recipe(copy / "recipe/frozen.yaml", [f"generate.lm-path={tmp_path / name}"])
        one = experiment(copy)
        found.append(Experiment(replace(one.run, recipe=recipe), one.name, 1).translation())
    assert found[0] == found[1] != found[2]


def test_one_byte_of_the_training_text_is_another_experiment(copy: Path) -> None:
    before = experiment(copy)
    text = (before.run.download_dir / "train.en").read_bytes()
    edit(
        "make.py",
        "main(Path(sys.argv[-1]))",
        "main(Path(sys.argv[-1]))\nraw = Path(sys.argv[-1]) / 'train.en'\nraw.write_bytes(b'S' + raw.read_bytes()[1:])",
    )(copy)
    after = experiment(copy)
    changed = (after.run.download_dir / "train.en").read_bytes()
    assert (len(changed), sum(a != b for a, b in zip(text, changed, strict=True))) == (len(text), 1)
    assert done(after) == ()


def test_only_the_content_of_a_file_to_fine_tune_from_counts(copy: Path, tmp_path: Path) -> None:
    found = []
    for name, content in (("a.pt", b"1"), ("b.pt", b"1"), ("a.pt", b"22")):
        (tmp_path / name).write_bytes(content)
        found.append(experiment(copy, extra={"finetune-from-model": str(tmp_path / name)}).made_from())
    assert found[0] == found[1] != found[2]
    assert FINGERPRINT not in map(fingerprint, found)


@pytest.mark.parametrize(
    ("owner", "name", "raised"),
    [(fairseq_posenc, "COMPUTATION", 2), (ENCODINGS["shaw"], "facts", Facts(initial_values=2))],
)
def test_a_raised_version_makes_another_experiment(
    copy: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, raised: Any
) -> None:
    monkeypatch.setattr(owner, name, raised)
    assert done(experiment(copy)) == ()


def test_the_generator_is_checked_even_if_all_is_done(copy: Path) -> None:
    plan = make_plan([experiment(copy)], ["download", "prepare", *STAGES])
    for job in plan.trainings.values():
        job.is_done = lambda: True
    assert [job.title for job in plan.to_do] == ["download en-de", "prepare en-de", "en-de frozen shaw-k2 seed 1"]


def test_without_the_text_no_stage_is_done(copy: Path) -> None:
    one = Experiment(make_run(copy, copy / "recipe/frozen.yaml", None), "shaw-k2", 1)
    assert one.made_from()["data"] is None
    assert done(one) == ()


def test_the_frozen_files_contain_no_absolute_paths() -> None:
    for path in FROZEN.rglob("*"):
        if path.is_file():
            data = path.read_bytes().replace(b"/tmp/plasma", b"")  # fairseq's own default
            assert not any(word in data for word in (b"/work", b"/home", b"/root", b"/tmp", b"/Users")), path
    assert all(
        not Path(name).is_absolute()
        for marker in (FROZEN / "output" / SETTING / "done").glob("*.json")
        for name in json.loads(marker.read_text())["outputs"]
    )
