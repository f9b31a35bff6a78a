"""An experiment's directory and commands follow from its settings."""

import importlib.metadata
import json
import re
import zipfile
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import fairseq_posenc
from fairseq_posenc.effects import PRECISIONS
from fairseq_posenc.encodings import ENCODINGS
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import fingerprint
from posenc_experiments.base.read_recipe import read_recipe
from posenc_experiments.base.run import Run, Session
from posenc_experiments.data.prepared import prepared_dir
from posenc_experiments.evaluation.results import read_results
from posenc_experiments.experiment.command_lines import generate_command, train_command
from posenc_experiments.experiment.experiment import Experiment, derive_batch, make_experiments
from posenc_experiments.experiment.versions import all_environments
from posenc_experiments.training import train
from posenc_experiments.training.train_log import TrainLog
from posenc_experiments.workflow.plan import EXPERIMENT_STAGES
from posenc_experiments.workflow.sweep import choose_experiments
from tests.experiments.tiny import CONF, make_experiment, make_recipe, make_run

ROOT = Path(__file__).resolve().parents[3]
SIDE = {"layers": 1, "embed_dim": 16, "ffn_embed_dim": 32}  # of CONF


def experiment(tmp_path: Path, conf: str = CONF, **options: Any) -> Experiment:
    if not (tmp_path / "recipe").exists():
        make_recipe(tmp_path)
    (tmp_path / "recipe" / "tiny.yaml").write_text(conf)
    return make_experiment(tmp_path, **options)


def flag_value(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


@pytest.mark.parametrize(
    ("options", "max_tokens", "update_freq", "warned"),
    [
        ({}, "200", "2", False),
        ({"gpus": 2}, "200", "1", False),
        ({"nodes": 2, "rendezvous": "host0:29500"}, "200", "1", False),
        ({"gpus": 2, "nodes": 2, "rendezvous": "host0:29500"}, "100", "1", False),
        ({"gpus": 4}, "100", "1", False),  # many GPUs take smaller parts
        ({"gpus": 3}, "133", "1", True),
        ({"gpus": 500}, "1", "1", True),
        ({"extra": {"max-tokens": "150"}}, "150", "3", True),
        ({"extra": {"max-tokens": "100"}}, "100", "4", False),
    ],
)
def test_the_batch_changes_no_experiment_and_an_inexact_one_is_warned_of(
    tmp_path: Path, options: dict[str, Any], max_tokens: str, update_freq: str, warned: bool
) -> None:
    one, other = experiment(tmp_path), experiment(tmp_path, **options)
    assert (derive_batch(other)[1] is not None) == warned
    words = train_command(other)
    assert (flag_value(words, "--max-tokens"), flag_value(words, "--update-freq")) == (max_tokens, update_freq)
    assert words.count("--max-tokens") == 1
    assert flag_value(words, "--distributed-world-size") == str(options.get("gpus", 1) * options.get("nodes", 1))
    assert one.directory == other.directory


@pytest.mark.parametrize(("flag", "refusal"), [("update-freq", "follows from .*batch-tokens"), ("max-tokens", "many")])
def test_a_batch_that_cannot_be_derived_is_refused(tmp_path: Path, flag: str, refusal: str) -> None:
    with pytest.raises(RecipeError, match=f"--{flag} {refusal}"):
        train_command(experiment(tmp_path, extra={flag: "many"}))


@pytest.mark.parametrize(
    ("conf", "options", "recorded"),
    [
        (CONF, {}, None),
        (CONF, {"cpu_processes": 2}, None),
        (CONF, {"extra": {"max-tokens": "150"}}, "1 x --max-tokens 150 --update-freq 3"),
        (CONF.replace("  batch-tokens: 400\n", ""), {"cpu_processes": 2}, "2 x --max-tokens 200"),
    ],
)
def test_a_batch_for_the_hardware_is_recorded(
    tmp_path: Path, conf: str, options: dict[str, Any], recorded: str | None
) -> None:
    about = experiment(tmp_path, conf=conf, **options).description()
    assert about["environment"].get("batch") == recorded
    assert about["fingerprint"] == experiment(tmp_path, conf=conf).fingerprint


@pytest.mark.parametrize(("threads", "said"), [(1, "1 thread"), (3, "3 threads")])
def test_the_processor_and_its_threads_are_recorded(tmp_path: Path, threads: int, said: str) -> None:
    about = experiment(tmp_path, cpus=threads).description()
    assert re.fullmatch(rf".+, [A-Z0-9 ]+, {said}", about["environment"]["device"])
    assert about["fingerprint"] == experiment(tmp_path).fingerprint
    older = {name: value for name, value in about["environment"].items() if name != "device"}
    resumed = all_environments(older, about["environment"])
    assert resumed == {**older, "device": ["not recorded", about["environment"]["device"]]}


@pytest.mark.parametrize(("program", "name"), [("echo NVIDIA $CUDA_VISIBLE_DEVICES", "NVIDIA 3"), ("exit 1", None)])
def test_the_gpu_of_the_job_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, name: str | None
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    one = experiment(tmp_path, gpus=1, session=Session(devices="3"))
    monkeypatch.setattr("sys.executable", str(python))
    assert one.description()["environment"]["device"] == (name or "GPU of unknown name")


FP16 = CONF.replace("  max-epoch: 4\n", "  max-epoch: 4\n  fp16:\n")


@pytest.mark.parametrize(
    ("conf", "options", "flag", "name"),
    [
        (CONF, {}, None, "shaw-k2"),
        (CONF, {"precision": "fp32"}, None, "shaw-k2"),
        (CONF, {"precision": "bf16"}, "bf16", "shaw-k2 --precision bf16"),
        (CONF, {"extra": {"bf16": ""}}, "bf16", "shaw-k2 --precision bf16"),
        (CONF, {"extra": {"fp16": ""}, "precision": "bf16"}, "bf16", "shaw-k2 --precision bf16"),
        (CONF, {"extra": {"bf16": ""}, "precision": "fp32"}, None, "shaw-k2"),
        (CONF, {"extra": {"memory-efficient-fp16": ""}, "precision": "fp16"}, "memory-efficient-fp16", None),
        (CONF, {"extra": {"amp": ""}}, "amp", "shaw-k2 --precision amp"),
        (FP16, {}, "fp16", "shaw-k2"),
        (FP16, {"precision": "fp16"}, "fp16", "shaw-k2"),
        (FP16, {"precision": "fp32"}, None, "shaw-k2 --precision fp32"),
    ],
)
def test_a_precision_other_than_single_makes_another_training(
    tmp_path: Path, conf: str, options: dict[str, Any], flag: str | None, name: str | None
) -> None:
    single, one = experiment(tmp_path, conf=CONF), experiment(tmp_path, conf=conf, **options)
    precisions = [word for word in train_command(one) if word.removeprefix("--") in PRECISIONS]
    assert precisions == ([] if flag is None else [f"--{flag}"])
    assert (one.fingerprint == single.fingerprint) == (one.directory == single.directory) == (flag is None)
    assert one.description()["name"] == (name or f"shaw-k2 --precision {flag}")


@pytest.mark.parametrize(
    ("setting", "library"),
    [
        ("none\n  normalize-punctuation: true", "sacremoses"),
        ("sentencepiece", "sentencepiece"),
        ("subword-nmt", "subword-nmt"),
        ("subword-nmt", "sacremoses"),
    ],
)
def test_text_by_another_version_of_its_library_is_other_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, library: str
) -> None:
    def identities() -> set[object]:
        one = experiment(tmp_path, conf=CONF.replace("subwords: none", f"subwords: {setting}"))
        assert one.description()["environment"][library] == importlib.metadata.version(library)
        return {one.fingerprint, prepared_dir(one.run), EXPERIMENT_STAGES["translate"].inputs(one)}

    version, before = importlib.metadata.version, identities()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.9" if name == library else version(name))
    assert not before & identities()


def test_kept_results_have_the_fingerprints_of_today() -> None:
    """So that a run skips nothing else, and new seeds are pooled with the kept ones."""
    names = ("kftt/kftt", "multi30k/multi30k", "multi30k/published", "multi30k/short")
    recipes = {one.corpus.name: one for one in (read_recipe(ROOT / f"recipes/{name}.yaml") for name in names)}
    checked = 0
    for archive in (ROOT / "results").rglob("*.zip"):
        with zipfile.ZipFile(archive) as opened:
            about = json.loads(opened.read(next(name for name in opened.namelist() if "experiment.json" in name)))
        assert about["fingerprint"] == fingerprint(about["made_from"])
        if about["corpus"] in recipes:  # the text of the others is by an earlier generator
            words = [about["encoding"], *(f"--{flag} {value}" for flag, value in about["flags"].items())]
            recipe, (name,) = choose_experiments(recipes[about["corpus"]], [" ".join(words)])
            one = Experiment(Run(recipe, about["pair"], Path("data"), Path("output")), name, 1)
            assert one.fingerprint == about["fingerprint"], archive
            checked += 1
    assert checked > 70


def test_kept_results_are_pooled_by_their_fingerprints() -> None:
    kept = read_results([ROOT / "results"])
    whole = kept["depends_on"].map(fingerprint)
    assert kept["fingerprint"].nunique() == whole.nunique() == (kept["fingerprint"] + whole).nunique() > 120


def test_flags_that_change_the_experiment_change_its_directory_and_name(tmp_path: Path) -> None:
    one, other = experiment(tmp_path), experiment(tmp_path, extra={"dropout": "0.5"})
    assert one.directory.parts[-4:] == ("tiny", "en-de", f"shaw-k2-{one.fingerprint[:8]}", "seed1")
    assert other.directory != one.directory
    about = other.description()
    assert about["fingerprint"] != one.fingerprint
    assert about["made_from"]["training"]["dropout"] == 0.5
    assert about["flags"] == {"clipping-distance": 2, "dropout": 0.5}
    assert about["name"] == "shaw-k2 --dropout 0.5"


@pytest.mark.parametrize(
    ("old", "new", "first"),
    [
        ("lr: 1e-2", "lr: 1e-3", "train"),
        ("batch-tokens: 400", "batch-tokens: 800", "train"),
        ("encoder-layers: 1", "encoder-layers: 2", "train"),
        ("subwords: none", "subwords: none\n  max-tokens: 9", "train"),
        ("keep-last-epochs: 2", "save-interval: 2", "train"),  # the checkpoints averaged are others
        ("average: 2", "average: 3", "average"),
        ("average: 2", "average: 2\n  average-by: updates", "average"),
        ("beam: 2", "beam: 3", "translate"),
        ("beam: 2", "lenpen: 0.6\n  length-penalty: wu", "translate"),
        ("subwords: none", "subwords: none\n  eval-max-tokens: 9", "translate"),
        ("\nexperiments:", "\nscore:\n  tokenized: split\nexperiments:", "score"),
        ("\nexperiments:", "\nscore:\n  tokenize: intl\nexperiments:", "score"),
        ("\nexperiments:", "\nscore:\n  tokenize: 13a\nexperiments:", None),
        ("subwords: none", "subwords: none\n  lowercase: true", "train"),
        ("subwords: none", "subwords: none\n  lowercase: false\n  normalize-punctuation: false", None),
        ("num-workers: 0", "num-workers: 1", None),
        ("num-workers: 0", "all-gather-list-size: 32768", None),
        ("num-workers: 0", "fp16-init-scale: 4", "train"),
        ("max-tokens: 200", "max-tokens: 100", None),  # of batch-tokens
        ("num-workers: 0", "batch-size: 8", "train"),
    ],
)
def test_a_setting_repeats_the_stages_that_depend_on_it(tmp_path: Path, old: str, new: str, first: str | None) -> None:
    before, after = experiment(tmp_path), experiment(tmp_path, conf=CONF.replace(old, new))
    repeated = [name for name, stage in EXPERIMENT_STAGES.items() if stage.inputs(before) != stage.inputs(after)]
    names = ["train", "average", "translate", "score"]
    assert repeated == ([] if first is None else names[names.index(first) :])


def test_normalization_and_the_unit_of_lengths_are_recorded_only_where_they_are_not_defaults(tmp_path: Path) -> None:
    def recorded(new: str, source: str = "en") -> object:
        conf = CONF.replace("subwords: none", f"subwords: sentencepiece\n  {new}").replace("en-de", f"{source}-de")
        made = experiment(tmp_path, conf=conf)
        table = made.run.recipe.path.with_name("sources.tsv")
        table.write_text(re.sub(r"\t(en|ja)\t", f"\t{source}\t", table.read_text()))
        return replace(made, run=replace(made.run, pair=f"{source}-de")).made_from.get("prepare")

    assert recorded("") == recorded("normalize: nmt_nfkc") == recorded("", "ja") is None
    assert recorded("normalize: identity") == {"normalize": "identity"}
    assert recorded("train-max-words: 9") == {"train_max_words": 9}
    assert recorded("train-max-words: 9", "ja") == {"train_max_words": 9, "length_unit": "characters"}


def test_an_additional_test_set_repeats_no_training() -> None:
    conf = ROOT / "recipes/multi30k/multi30k.yaml"

    def inputs(stage: str, pair: str, tests: str) -> str:
        run = make_run(ROOT, conf, overrides=[f"corpus.tests={tests}"], pair=pair)
        return EXPERIMENT_STAGES[stage].inputs(Experiment(run, "sinusoidal", 1))

    one, two = "test_2016_flickr", "test_2016_flickr test_2017_flickr"
    assert inputs("average", "en-de", one) == inputs("average", "en-de", two)
    assert inputs("translate", "en-de", one) != inputs("translate", "en-de", two)
    assert inputs("score", "en-cs", one) == inputs("score", "en-cs", two)  # the pair lacks the second


def test_a_value_of_set_makes_a_separate_experiment(tmp_path: Path) -> None:
    without = ["train.num-workers=1", "model.setup=x"]  # which change no result
    given = ["train.lr=0.5", "train.batch-tokens=800", "prepare.max-tokens=9", *without]
    one = experiment(tmp_path, overrides=given)
    assert one.directory != experiment(tmp_path).directory
    assert experiment(tmp_path, overrides=without).directory == experiment(tmp_path).directory
    assert one.description()["flags"] == {"clipping-distance": 2, "lr": 0.5, "batch-tokens": 800}
    assert one.description()["name"] == "shaw-k2 --batch-tokens 800 --lr 0.5"
    assert "--batch-tokens" not in train_command(one)


def test_several_processes_use_torchrun_and_one_does_not(tmp_path: Path) -> None:
    words = train_command(experiment(tmp_path, gpus=2))
    expected = ["-P", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "fairseq_cli.train"]
    assert words[1:9] == expected
    assert "--cpu" not in words
    assert train_command(experiment(tmp_path, gpus=1))[1:4] == ["-P", "-m", "fairseq_cli.train"]
    assert "--cpu" in train_command(experiment(tmp_path))
    words = train_command(experiment(tmp_path, nodes=2, node_rank=1, rendezvous="[fd00::1]:29500"))
    expected_flags = {"--nnodes": "2", "--node_rank": "1", "--master_addr": "fd00::1", "--master_port": "29500"}
    assert {flag: flag_value(words, flag) for flag in expected_flags} == expected_flags


def test_hardware_and_reporting_do_not_change_the_experiment(tmp_path: Path) -> None:
    one = experiment(tmp_path)
    other = experiment(tmp_path, gpus=2, tensorboard=True, wandb="posenc")
    assert one.directory == other.directory
    words = train_command(other)
    assert flag_value(words, "--wandb-project") == "posenc"
    assert flag_value(words, "--tensorboard-logdir") == str(one.directory / "tensorboard")


@pytest.mark.parametrize(
    ("average", "options", "kept"),
    [
        ("7", {}, {"keep-last-epochs": "7"}),
        ("7\n  average-by: updates", {}, {"keep-last-epochs": "2"}),  # fairseq keeps all by updates
        ("7\n  average-by: updates", {"keep-interval-updates": "2"}, {"keep-interval-updates": "7"}),
        ("7\n  average-by: updates", {"keep-interval-updates": "9"}, {"keep-interval-updates": "9"}),
    ],
)
def test_checkpoints_to_average_are_kept(
    tmp_path: Path, average: str, options: dict[str, str], kept: dict[str, str]
) -> None:
    words = train_command(experiment(tmp_path, conf=CONF.replace("average: 2", f"average: {average}"), extra=options))
    assert {flag: flag_value(words, f"--{flag}") for flag in kept} == kept
    assert ("--keep-interval-updates" in words) == bool(options)


def test_the_length_penalty_changes_the_task_of_generation_only(tmp_path: Path) -> None:
    wu = experiment(tmp_path, conf=CONF.replace("beam: 2", "length-penalty: wu"))
    words = generate_command(wu, "test", tmp_path)
    assert flag_value(words, "--task") == "translation_gnmt_penalty"
    assert "--length-penalty" not in words
    assert flag_value(generate_command(experiment(tmp_path), "test", tmp_path), "--task") == "translation"
    assert flag_value(train_command(wu), "--task") == "translation"


def test_the_identity_is_what_was_given(tmp_path: Path) -> None:
    """A change of this dictionary without a change of settings would train every experiment again."""
    made = experiment(tmp_path).made_from
    assert [split.keys() for split in (*made.pop("data")["train"],)] == [{"en", "de"}]
    layers = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIDE.items()}
    assert made == {
        "computation": fairseq_posenc.COMPUTATION,
        "initial_values": {"shaw": ENCODINGS["shaw"].facts.initial_values},
        "architecture": "transformer_shaw_tiny",
        "training": {**layers, "clipping_distance": 2, "lr": 0.01, "max_epoch": 4, "optimizer": "adam"},
        "batch_tokens": 400,
        "pair": "en-de",
        "prepare": {"subwords": "none"},
    }


@pytest.mark.parametrize("flag", ["finetune-from-model", "encoder-embed-path", "input-positions-from"])
def test_files_count_by_their_content(tmp_path: Path, flag: str) -> None:
    def identity(name: str, content: str) -> str:
        (tmp_path / name).write_text(content)
        return experiment(tmp_path, extra={flag: str(tmp_path / name)}).fingerprint

    assert identity("a.pt", "weights") == identity("b.pt", "weights") != identity("b.pt", "others")


def test_initial_positions_that_are_sinusoids_are_no_file(tmp_path: Path) -> None:
    one, usual = experiment(tmp_path, extra={"input-positions-from": "sinusoidal"}), experiment(tmp_path)
    assert one.made_from == {**usual.made_from, "files": {"input_positions_from": "sinusoidal"}}


def test_the_learning_rate_decays_until_the_last_update(tmp_path: Path) -> None:
    conf = CONF.replace("max-epoch: 4", "max-update: 40\n  total-num-update: auto")
    without = conf.replace("max-update: 40", "max-epoch: 4")
    with pytest.raises(RecipeError, match="--total-num-update auto is --max-update, which is missing"):
        _ = experiment(tmp_path, conf=without).train_flags
    for extra, last in (({}, "40"), ({"max-update": "60"}, "60"), ({"total-num-update": "50"}, "50")):
        assert experiment(tmp_path, conf=conf, extra=extra).train_flags["total-num-update"] == last


def test_names_of_one_experiment_run_once_with_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "  same: shaw --clipping-distance 2\n  lr1: shaw --lr 1e-2\n  lr2: shaw --lr 0.01\n"
    run = experiment(tmp_path, conf=CONF + rows).run
    run = replace(run, session=Session(Console(width=1000)))
    made = make_experiments(run, ["shaw-k2", "same", "sinusoidal", "lr1", "lr2"], [1, 2])
    assert [(one.name, one.seed) for one in made] == [*product(("shaw-k2", "sinusoidal", "lr1"), (1, 2))]
    assert capsys.readouterr().out.splitlines() == [
        "same is the same experiment as shaw-k2: it is run once, as shaw-k2.",
        "lr2 is the same experiment as lr1: it is run once, as lr1.",
    ]


@pytest.mark.parametrize(
    ("section", "canonical"),
    [
        (
            "average: 1\n  lenpen: 1.0\n  max-tokens: 4000\n  model-overrides: \"{'rotary_ntk_scale': 2.0}\"",
            {"lenpen": 1, "model_overrides": {"rotary_ntk_scale": 2}},
        ),
        ("average: 3\n  average-by: epochs\n  lenpen: 0.60\n  beam: 4", {"average": 3, "beam": 4, "lenpen": 0.6}),
        (
            "average: 3\n  average-by: updates\n  max-len-a: 1.0\n  unnormalized:\n  length-penalty: power",
            {"average": 3, "average_by": "updates", "max_len_a": 1, "unnormalized": True},
        ),
    ],
)
def test_settings_of_translations_are_normalized(tmp_path: Path, section: str, canonical: dict[str, object]) -> None:
    one = experiment(tmp_path, conf=CONF.replace("average: 2\n  beam: 2", section))
    assert one.translation() == canonical


def test_words_per_second_excludes_validation() -> None:
    """fairseq's log lines, of 10 updates of 100 words each; windows with other work are slow."""
    log = TrainLog()

    def inner_line(updates: int, rate: float) -> bytes:
        row = {"epoch": 1, "update": 0.1, "wps": f"{rate:.1f}", "wpb": "100", "num_updates": str(updates)}
        return b"2026 | INFO | train_inner | " + json.dumps(row).encode()

    for line in [
        b"2026 | INFO | fairseq_cli.train | num. shared model params: 1,234,567 (num. trained: 1,234,560)",
        b"2026 | INFO | fairseq.trainer | begin training epoch 1",
        inner_line(10, 300),  # the first window includes the start
        inner_line(20, 1000),
        b'2026 | INFO | fairseq_cli.train | begin validation on "valid" subset',
        b'2026 | INFO | valid | {"epoch": 1, "valid_loss": "3.5", "valid_num_updates": "20"}',
        inner_line(30, 200),
        inner_line(40, 500),
        b'2026 | INFO | train_inner | {"epoch": 1, "upd',  # cut by a kill
    ]:
        log.feed(line)
    assert log.parameters == 1_234_560
    assert log.valid_loss == 3.5
    assert log.updates == 40
    assert log.words_per_second == pytest.approx(2000 / 3)  # 1,000 words in 1 s and 1,000 in 2 s
    assert log.updates_per_second == pytest.approx(5)


def test_the_remaining_time_is_printed_once_it_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """5 updates a second, of 6,040; only the ends of epochs are printed, too."""
    one = experiment(tmp_path, conf=CONF.replace("max-epoch: 4", "max-update: 6040"))
    display = train._Display(one, TrainLog())
    one.train_log.parent.mkdir(parents=True)
    for updates in (20, 40, 60):
        row = {"epoch": 1, "wps": "500", "wpb": "100", "num_updates": str(updates)}
        with open(one.train_log, "a") as log:
            log.write(f"2026 | INFO | train_inner | {json.dumps(row)}\n")
        display.show()
    said = capsys.readouterr().out.splitlines()
    assert said == ["train: shaw-k2 en-de seed 1: epoch 1, 40 updates, 500 words/s, about 20 min left"]
