"""The values of `--experiments`."""

from dataclasses import replace
from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.flags import parse_flags
from posenc_experiments.base.read_recipe import read_recipe
from posenc_experiments.base.recipe import Recipe
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.workflow.plan import EXPERIMENT_STAGES
from posenc_experiments.workflow.sweep import choose_experiments
from tests.experiments.tiny import CONF, make_experiment, make_recipe, make_run

ROWS = """
  shaw-k1: shaw --clipping-distance 1
  shaw-k16: shaw --clipping-distance 16
  shaw-keys: shaw --relative-values false --clipping-distance 16
  diet_rel: diet_rel
  betas: sinusoidal --adam-betas '(0.9, 0.98)'
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return read_recipe(make_recipe(tmp_path, CONF + ROWS)[0])


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        ([], ["shaw-k2"]),
        (["sinusoidal,shaw-k2"], ["sinusoidal", "shaw-k2"]),
        (["sinusoidal shaw-k2, sinusoidal"], ["sinusoidal", "shaw-k2"]),
        (["sinusoidal", "shaw-k2", "sinusoidal"], ["sinusoidal", "shaw-k2"]),
        (
            ["shaw --clipping-distance 16,0,2", "shaw-k2,diet_rel"],
            ["shaw-k16", "shaw-clipping-distance-0", "shaw-k2", "diet_rel"],
        ),
        (["shaw --clipping-distance=16.0"], ["shaw-k16"]),
        (["shaw --clipping-distance 16 --relative-values false"], ["shaw-keys"]),
        (["shaw-keys --clipping-distance 2"], ["shaw-k2-relative-values-false"]),
        (["shaw-keys --dropout 0.1"], ["shaw-keys-dropout-0.1"]),
        (["sinusoidal --adam-betas (0.90,0.98),'(0.9, 0.99)'"], ["betas", "sinusoidal-adam-betas-0.9_0.99"]),
        (["sinusoidal --encoder-normalize-before"], ["sinusoidal-encoder-normalize-before"]),
        (["shaw --clipping-distance"], ["shaw-clipping-distance"]),  # which fairseq refuses: not K = 1
        (
            ["diet_rel,sinusoidal --dropout 0,0.1 --lr=1e-3,2e-3"],
            [f"{row}-dropout-{p}-lr-{lr}e-3" for row in ("diet_rel", "sinusoidal") for p in (0, 0.1) for lr in (1, 2)],
        ),
        (["t5 --max-relative 8"], ["t5-max-relative-8"]),  # an encoding without a row
    ],
)
def test_experiments_in_the_order_given(recipe: Recipe, texts: list[str], names: list[str]) -> None:
    extended, chosen = choose_experiments(recipe, texts)
    assert chosen == names
    assert recipe.experiments.items() <= extended.experiments.items()


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("(0.9, 0.98)", "(0.9, 0.98)"),
        ("'(0.9, 0.98)'", "(0.9, 0.98)"),
        ("{'a': \"1, (\"}", "{'a': \"1, (\"}"),
        ("[[1, 2], [3, 4]]", "[[1, 2], [3, 4]]"),
        ("'a b,c'", "a b,c"),
        ("x=1", "x=1"),
        ("-1", "-1"),
        ("--a", ""),
    ],
)
def test_values_may_hold_brackets_quotes_and_spaces(recipe: Recipe, typed: str, value: str) -> None:
    words = "sinusoidal --a" if typed == "--a" else f"sinusoidal --a {typed}"
    extended, (name,) = choose_experiments(recipe, [words])
    assert parse_flags(extended.experiments[name][1:], "") == {"a": value}


@pytest.mark.parametrize(
    ("typed", "row"),
    [("shaw --clipping-distance 2", "shaw-k2"), ("sinusoidal --dropout 0.2 --lr 3e-3", "other")],
)
def test_a_row_with_the_same_flags_is_the_experiment(tmp_path: Path, typed: str, row: str) -> None:
    conf, _ = make_recipe(tmp_path, f"{CONF}  other: sinusoidal --lr 3e-3 --dropout 0.2\n")
    trained = make_experiment(tmp_path, row)
    trained.directory.mkdir(parents=True)
    conf.write_text(CONF)  # which has no row `other`
    run = make_run(tmp_path)
    recipe, (name,) = choose_experiments(run.recipe, [typed])
    swept = Experiment(replace(run, recipe=recipe), name, 1)
    assert swept.directory == trained.directory
    assert EXPERIMENT_STAGES["score"].inputs(swept) == EXPERIMENT_STAGES["score"].inputs(trained)


def test_a_name_that_the_conf_gives_to_another_experiment_is_not_taken(tmp_path: Path) -> None:
    row = "sinusoidal-dropout-0.2: sinusoidal --dropout 0.3"
    recipe = read_recipe(make_recipe(tmp_path, f"{CONF}  {row}\n")[0])
    extended, (name,) = choose_experiments(recipe, ["sinusoidal --dropout 0.2"])
    assert name.startswith("sinusoidal-dropout-0.2-")
    assert extended.experiments[name] == ["sinusoidal", "--dropout", "0.2"]
    assert extended.experiments["sinusoidal-dropout-0.2"] == ["sinusoidal", "--dropout", "0.3"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "name at least one; tiny.yaml has shaw-k2, sinusoidal"),
        ("shaw", r"--experiments shaw: .* such experiment \(did you mean shaw-k2\?\); it has shaw-k2, sinusoidal"),
        ("--a 1", "before the flags"),
        ("shaw --a 1, 2", "'2' belongs to no flag"),
        ("shaw --a 1 --a 2", "--a is given twice"),
        ("shaw --seed 1,2", "--seed is set by the pipeline: give --seeds"),
    ],
)
def test_misuse_is_one_sentence(recipe: Recipe, text: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words) as error:
        choose_experiments(recipe, [text])
    assert str(error.value).startswith("--experiments")
    assert "\n" not in str(error.value)
