"""Numbers that no command accepts: NaN, infinities, and sizes that would take all memory."""

from collections.abc import Iterator

import click
import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.read_recipe import read_recipe
from posenc_experiments.cli import COMMANDS, group
from tests.experiments.commands.test_outputs import ROOT
from tests.experiments.tiny import run_here

#: options of `average` that choose files by their number, and size nothing
CHOICES = {"last_epochs", "last_updates", "up_to"}


def parameters(kind: type[click.ParamType]) -> Iterator[tuple[str, click.ParamType]]:
    """The options and arguments of every command that are numbers of a kind, also those of a list."""
    context = click.Context(group)
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            number = getattr(parameter.type, "one", parameter.type)
            if isinstance(number, kind) and parameter.name not in CHOICES:
                yield f"{name} {parameter.name}", number


def test_every_real_number_is_finite() -> None:
    numbers = dict(parameters(click.types.FloatParamType))
    assert {"compare margin", "estimate-cost words_per_second"} <= numbers.keys()
    for name, kind in numbers.items():
        for value in ("nan", "inf", "-inf", "1e999"):
            with pytest.raises(click.BadParameter, match="is not"):
                print(name, kind.convert(value, None, None))


def test_every_whole_number_has_a_limit() -> None:
    numbers = dict(parameters(click.types.IntParamType))
    assert {"describe vocabulary", "benchmark lengths", "run cpus", "own jobs", "table gpus"} <= numbers.keys()
    for name, kind in numbers.items():
        with pytest.raises(click.BadParameter, match="is not in the range"):
            print(name, kind.convert("99999999999", None, None))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", "results", "--baseline", "x", "--margin", "nan"], "'--margin': nan is not a finite number."),
        (["estimate-cost", "recipes", "--words-per-second", "inf"], "'--words-per-second': inf is not a finite"),
        (["describe", "transformer_shaw_tiny", "--vocabulary", "99999999999"], "99999999999 is not in the range 5<=x"),
    ],
)
def test_they_are_refused_in_a_sentence(words: list[str], message: str) -> None:
    result = run_here(*words)
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_recipe_has_finite_numbers(value: str) -> None:
    with pytest.raises(RecipeError, match=r"prepare.max-ratio.*is not a finite number"):
        read_recipe(ROOT / "recipes" / "quickstart" / "quickstart.yaml", [f"prepare.max-ratio={value}"])
