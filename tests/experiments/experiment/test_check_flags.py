"""Settings that cannot lead to a result are refused before training, with the place where they were set."""

from dataclasses import replace
from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.read_recipe import read_recipe
from posenc_experiments.base.run import Run
from posenc_experiments.experiment.check_flags import check_flags
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.workflow.plan import EXPERIMENT_STAGES
from posenc_experiments.workflow.sweep import choose_experiments
from tests.experiments.tiny import CONF, directories, make_recipe, make_run, prepare_data, run_here

BY_UPDATES = ("generate.average-by=updates", "train.save-interval-updates=10")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Data whose longest sentences have 9 words and </s>."""
    root = tmp_path_factory.mktemp("settings")
    return prepare_data(make_run(root, *make_recipe(root)))


def check(run: Run, *overrides: str, sweep: str = "shaw-k2", stage: str = "train", **options: object) -> None:
    recipe, (name,) = choose_experiments(read_recipe(run.recipe.path, overrides), [sweep])
    check_flags([Experiment(replace(run, recipe=recipe, **options), name, 1)], [EXPERIMENT_STAGES[stage]])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("overrides", "refusal"),
    [
        (["train.max-epoch=1"], "--set train.max-epoch: --max-epoch 1 with --save-interval 1 leaves 1 of the 2"),
        (["train.max-epoch=5", "train.save-interval=3"], "--save-interval 3 leaves 1 of the 2 checkpoints by epochs"),
        (["train.no-epoch-checkpoints="], "leaves 0 of the 2 checkpoints by epochs"),
        (["train.max-update=19", *BY_UPDATES], "--max-update 19 with --save-interval-updates 10 leaves 1 of the 2"),
        (["generate.average-by=updates"], "--save-interval-updates 0 leaves 0 of the 2 checkpoints by updates"),
        (["train.max-epoch=0"], "the training would never end"),
        (["train.patience=3", "train.disable-validation=", "train.max-epoch=0"], "would never end"),
        (["model.share-all-embeddings=", "prepare.joined-dictionary=false"], "requires a joined dictionary"),
        (["train.finetune-from-model=no/such.pt"], "--finetune-from-model no/such.pt: there is no such file"),
        (["model.input-positions-from=sinusoidal"], "--set model.input-positions-from: .* without --input-positions"),
        (["train.lr=high"], "--set train.lr: .*high"),
        (["train.lr=.inf"], "--set train.lr: argument --lr: invalid value: '.inf'"),
        (["train.lr=2026-01-01"], "--set train.lr: argument --lr: invalid value: '2026-01-01'"),
        (["train.max-tokens-valid=many"], "--set train.max-tokens-valid: .* write a whole number"),
    ],
)
def test_a_training_without_a_result_is_refused(prepared: Run, overrides: list[str], refusal: str) -> None:
    with pytest.raises(RecipeError, match=refusal) as error:
        check(prepared, *overrides)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "overrides",
    [
        ["train.max-epoch=2"],
        ["train.max-epoch=1", "generate.average=1"],
        ["train.max-update=20", *BY_UPDATES],
        ["train.max-epoch=0", "train.patience=3"],
        ["train.max-epoch=0", "train.stop-time-hours=0.1"],
    ],
)
def test_a_training_with_a_result_is_accepted(prepared: Run, overrides: list[str]) -> None:
    check(prepared, *overrides)


@pytest.mark.parametrize("flag", ["max-tokens", "max-tokens-valid", "max-source-positions", "max-target-positions"])
def test_limits_below_the_longest_sentence_are_refused(prepared: Run, tmp_path: Path, flag: str) -> None:
    kept = "is below the longest sentence that was kept, 10 tokens with its </s>"
    with pytest.raises(RecipeError, match=f"^--set train.{flag}: --{flag} 9 {kept}"):
        check(prepared, f"train.{flag}=9")
    check(prepared, f"train.{flag}=10")
    check(replace(prepared, data_dir=tmp_path), f"train.{flag}=9")  # data that is not prepared
    if flag != "max-tokens-valid":
        with pytest.raises(RecipeError, match=f"^--set generate.{flag}: --{flag} 5 is below the longest"):
            check(prepared, f"generate.{flag}=5", stage="translate")


def test_the_part_of_each_process_must_hold_the_longest_sentence(prepared: Run) -> None:
    check(prepared, hardware=replace(prepared.hardware, gpus=8))
    with pytest.raises(RecipeError, match=r"--max-tokens 8 is below the longest sentence .* use fewer processes"):
        check(prepared, hardware=replace(prepared.hardware, gpus=50))
    with pytest.raises(RecipeError, match=r"^--max-tokens after --: --max-tokens 9 is below the longest sentence"):
        check(prepared, extra={"max-tokens": "9"})


@pytest.mark.parametrize(
    ("sweep", "place"),
    [
        ("shaw --clipping-distance far", "--experiments 'shaw --clipping-distance far': .*--clipping-distance"),
        ("shaw --left-clip 2", "--experiments 'shaw --left-clip 2': .*--left-clip"),  # of another encoding
        ("shaw --clipping-distance=-1", "--experiments .*--clipping-distance"),  # refused when the model is built
        ("shaw --clipping-distanc 8", r"--experiments .* \(did you mean --clipping-distance\?\)$"),
        ("shaw --decoder-attention-heads 7", "tiny.yaml, experiment shaw.*-7: no model can be built with these flags"),
        (
            "shwa --dropout 0",
            r"--experiments 'shwa --dropout 0', or .*: there is no architecture 'transformer_shwa_tiny' \(did you mean "
            r"transformer_shaw_tiny\?\)\.",
        ),
        ("shaw --target-position-encoding shwa", r"there is no position encoding 'shwa' \(did you mean shaw\?\)"),
    ],
)
def test_flags_that_fairseq_refuses_are_named_as_typed(prepared: Run, sweep: str, place: str) -> None:
    with pytest.raises(RecipeError, match=place):
        check(prepared, sweep=sweep)


@pytest.mark.parametrize(
    "flags", ["--adaptive-softmax-cutoff 2000 --criterion adaptive_loss --ddp-backend legacy_ddp", "--base-layers 1"]
)
def test_flags_that_depend_on_the_vocabulary_or_on_other_processes_pass(prepared: Run, flags: str) -> None:
    check(prepared, sweep=f"shaw {flags}")


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("lr: 1e-2", "lr: 1e-2\n  warmup-updates: many\n  lr-scheduler: inverse_sqrt", "train.warmup-updates"),
        ("beam: 2", "beam: 2\n  beem: 3", "generate.beem"),
        ("--clipping-distance 2", "--clipping-distance far", "experiments.shaw-k2"),
        ("encoder-layers: 1", "encoder-layer-count: 1", "model.encoder-layer-count"),
    ],
)
def test_the_file_of_a_refused_flag_is_named_before_any_work(tmp_path: Path, old: str, new: str, place: str) -> None:
    conf, corpus = make_recipe(tmp_path, CONF.replace(old, new))
    result = run_here("run", "--conf", conf, "--gpus", "0", "--source", corpus, *directories(tmp_path))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {conf}, {place}: ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "output").exists()
