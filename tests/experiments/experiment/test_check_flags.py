"""Settings that cannot lead to a result are refused before training, with the place where they were set."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.flags import Flags
from posenc_experiments.base.run import Hardware, Run
from posenc_experiments.base.settings import read_recipe
from posenc_experiments.experiment import check_flags
from posenc_experiments.experiment.check_flags import Checked, check_data, check_settings
from posenc_experiments.experiment.experiment import Experiment, derive_batch
from tests.experiments.tiny import CONF, make_recipe, make_run, prepare_data

BY_UPDATES = ("generate.average-by=updates", "train.save-interval-updates=10")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Data whose longest sentences have 9 words and </s>."""
    root = tmp_path_factory.mktemp("settings")
    return prepare_data(make_run(root, *make_recipe(root)))


def checked(run: Run, kind: str, *overrides: str, extra: Flags | None = None, name: str = "shaw-k2") -> Checked:
    """A command of this run with these values, as fairseq reads it."""
    run = replace(run, recipe=read_recipe(run.recipe.path, overrides), extra=extra or {})
    experiment = Experiment(run, name, 1)
    assert experiment.made_from  # as check_flags does first
    return check_flags.read_training(experiment) if kind == "train" else check_flags.read_generation(experiment)


def conf(tmp_path: Path, *changes: tuple[str, str]) -> Run:
    text = CONF
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return make_run(tmp_path, make_recipe(tmp_path, text)[0], None)


def test_the_settings_of_the_tests_are_accepted(prepared: Run) -> None:
    for kind in ("train", "translate"):
        one = checked(prepared, kind)
        check_settings(one)
        check_data([one])


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["train.max-epoch=1"], ["--set train.max-epoch: --max-epoch 1 with --save-interval 1 leaves 1 of the 2"]),
        (["train.max-epoch=5", "train.save-interval=3"], ["--save-interval 3 leaves 1 of the 2 checkpoints by epochs"]),
        (["train.max-epoch=0"], ["tiny.yaml", "the training would never end"]),
        (["train.max-epoch=-1"], ["--set train.max-epoch: --max-epoch -1: write at least 0"]),
        (["train.max-update=19", *BY_UPDATES], ["--max-update 19 with --save-interval-updates 10 leaves 1 of the 2"]),
        (["train.save-interval=0"], ["--set train.save-interval: --save-interval 0: write at least 1"]),
        (["train.validate-interval=0"], ["--validate-interval 0: write at least 1"]),
        (["train.max-tokens-valid=0"], ["--max-tokens-valid 0: write at least 1"]),
        (["train.max-tokens-valid=many"], ["--max-tokens-valid many: write a whole number"]),
        (["train.best-checkpoint-metric=bleu"], ["--best-checkpoint-metric bleu", "unless --eval-bleu is given"]),
        (["model.share-all-embeddings=", "prepare.joined-dictionary=false"], ["needs prepare.joined-dictionary"]),
        (["train.patience=3", "train.disable-validation=", "train.max-epoch=0"], ["would never end"]),
        (["train.finetune-from-model=no/such.pt"], ["--set train.finetune-from-model", "there is no such file"]),
        (["train.encoder-embed-path=none.txt"], ["--encoder-embed-path none.txt: there is no such file"]),
        (["train.lr=0"], ["--set train.lr: --lr 0.0: write a number above 0."]),
        (["train.lr=0.1,-1e-3"], ["--set train.lr: --lr -0.001: write a number above 0."]),
        (["train.lr=1e999"], ["--set train.lr: --lr inf: write a number above 0."]),
        *(
            ([f"train.{flag}={share}"], [f"--set train.{flag}: --{flag} {share}: write a number from 0 to below 1."])
            for flag, share in (("dropout", 1.5), ("attention-dropout", -0.1), ("encoder-layerdrop", 2.0))
        ),
    ],
)
def test_a_training_without_a_result_is_refused(prepared: Run, overrides: list[str], words: list[str]) -> None:
    with pytest.raises(RecipeError) as error:
        check_settings(checked(prepared, "train", *overrides))
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_a_model_that_fits_no_machine_is_refused(prepared: Run) -> None:
    overrides = ["experiments.shaw-k2=shaw --clipping-distance 99999999999"]
    run = replace(prepared, recipe=read_recipe(prepared.recipe.path, overrides))
    words = r"experiment shaw-k2: the model has 12,800,000,\d{3},\d{3} parameters, .* in encoder\.layers\.0"
    with pytest.raises(RecipeError, match=words):
        check_flags.check_flags([Experiment(run, "shaw-k2", 1)], ["train"])


def test_the_origin_of_the_flag_is_named(prepared: Run, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"^--max-epoch after --: --max-epoch 1 with"):
        check_settings(checked(prepared, "train", extra={"max-epoch": "1"}))
    run = conf(tmp_path, ("--clipping-distance 2", f"--clipping-distance 2 --finetune-from-model {tmp_path}"))
    with pytest.raises(RecipeError, match=rf"shaw-k2: --finetune-from-model {tmp_path}: this is a directory"):
        check_settings(checked(run, "train"))
    check_settings(checked(run, "train", name="sinusoidal"))


@pytest.mark.parametrize(
    "overrides",
    [
        ["train.max-epoch=2"],
        ["train.max-epoch=1", "generate.average=1"],
        ["train.max-update=20", *BY_UPDATES],
        ["train.max-epoch=0", "train.patience=3"],
        ["train.max-epoch=0", "train.stop-time-hours=0.1"],
        ["train.max-epoch=0", "train.max-update=10", "generate.average=1"],
    ],
)
def test_a_training_with_a_result_is_accepted(prepared: Run, overrides: list[str]) -> None:
    check_settings(checked(prepared, "train", *overrides))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["generate.beam=0"], "--set generate.beam: --beam 0: write at least 1"),
        (["generate.nbest=0"], "--nbest 0: write at least 1"),
        (["generate.max-len-b=0"], "--set generate.max-len-b: a source of 1,024 tokens gets at most 0"),
        (["generate.max-len-a=0.5", "generate.max-len-b=1", "generate.min-len=600"], "at most 513 .* at least 600"),
        (["generate.sampling="], "--sampling needs --nbest to be the same as --beam"),
        (["generate.sampling-topk=10"], "--sampling-topk needs --sampling"),
        (["generate.diverse-beam-groups=3"], "--diverse-beam-groups 3 does not divide --beam 2"),
        (["generate.match-source-len=", "generate.diversity-rate=0.5"], "are different kinds of search"),
        (["generate.temperature=0"], "--temperature 0.0: write a number above 0"),
        (["generate.lenpen=nan"], "--set generate.lenpen: --lenpen nan: write a finite number"),
        (["generate.model-overrides={"], "--model-overrides {: write a dictionary"),
        (["generate.model-overrides={'position_encoding': 't5'}"], "the architecture names the encoding; leave it out"),
        (["generate.constraints="], "--constraints needs constraints of each sentence"),
    ],
)
def test_a_generation_without_a_result_is_refused(prepared: Run, overrides: list[str], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        check_settings(checked(prepared, "translate", *overrides))


class TestData:
    """Settings that are checked with the prepared data."""

    @pytest.mark.parametrize(
        ("override", "flag", "extra"),
        [
            ("train.max-tokens=9", "max-tokens", {}),
            ("train.max-tokens-valid=9", "max-tokens-valid", {}),
            ("train.max-source-positions=9", "max-source-positions", {}),
            ("train.max-target-positions=9", "max-target-positions", {}),
            ("model.max-target-positions=9", "max-target-positions", {}),
            (None, "max-tokens", {"max-tokens": "9"}),
        ],
    )
    def test_limits_below_the_longest_sentence_are_refused(
        self, prepared: Run, override: str | None, flag: str, extra: Flags
    ) -> None:
        where = f"--set {override.split('=')[0]}" if override else f"--{flag} after --"
        one = checked(prepared, "train", *([override] if override else []), extra=extra)
        with pytest.raises(RecipeError) as error:
            check_data([one])
        assert str(error.value).startswith(
            f"{where}: --{flag} 9 is below the longest sentence that was kept, 10 tokens with its </s>: "
        )
        overrides = [override.replace("=9", "=10")] if override else []
        check_data([checked(prepared, "train", *overrides, extra=dict.fromkeys(extra, "10"))])

    def test_limits_apply_to_test_sets_too(self, prepared: Run) -> None:
        for flag in ("max-tokens", "max-source-positions", "max-target-positions"):
            with pytest.raises(RecipeError, match=rf"^--set generate.{flag}: --{flag} 5 is below the longest"):
                check_data([checked(prepared, "translate", f"generate.{flag}=5")])
        with pytest.raises(RecipeError, match="a source of 2 tokens gets at most 0 "):
            check_data([checked(prepared, "translate", "generate.max-len-a=0.4", "generate.max-len-b=0")])

    def test_data_that_is_not_prepared_is_not_checked(self, prepared: Run, tmp_path: Path) -> None:
        check_data([checked(replace(prepared, data_dir=tmp_path), "train", "train.max-tokens=9")])

    def test_the_part_of_each_process_must_hold_the_longest_sentence(self, prepared: Run, tmp_path: Path) -> None:
        """prepare allows 1,000 tokens, more than a part of 400 / 8; the data has at most 10."""
        eight = replace(prepared, hardware=Hardware(gpus=8))
        assert derive_batch(Experiment(eight, "shaw-k2", 1))[0]["max-tokens"] == "50"
        with pytest.raises(RecipeError, match=r"on 50 processes leaves each 8, fewer than the 10 of .* prepared data"):
            derive_batch(Experiment(replace(prepared, hardware=Hardware(gpus=50)), "shaw-k2", 1))
        with pytest.raises(RecipeError, match=r"on 8 processes leaves each 50, fewer than the 1,001 of .* allow"):
            derive_batch(Experiment(replace(eight, data_dir=tmp_path), "shaw-k2", 1))


def test_nothing_is_trained_or_downloaded_with_such_settings(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from posenc_experiments.cli import group

    path, corpus = make_recipe(tmp_path)
    words = ["--conf", path, "--gpus", "0", "--source", corpus, "--set", "train.max-epoch=1"]
    result = CliRunner().invoke(
        group, ["run", *map(str, words), "--data-dir", str(tmp_path / "data"), "--output-dir", str(tmp_path / "output")]
    )
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "Error: --set train.max-epoch: --max-epoch 1 with --save-interval 1 leaves 1 of the 2"
    )
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "output").exists()


def test_too_small_batches_are_refused_between_preparing_and_training(prepared: Run, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from posenc_experiments.cli import group

    shutil.copytree(prepared.data_dir, tmp_path / "data")
    words = ["--conf", prepared.recipe.path, "--gpus", "0", "--stages", "train", "--data-dir", tmp_path / "data"]
    result = CliRunner().invoke(
        group, ["run", *map(str, words), "--output-dir", str(tmp_path / "output"), "--", "--max-tokens=9"]
    )
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: --max-tokens after --: --max-tokens 9 is below the longest sentence")
    assert not (tmp_path / "output").exists()
