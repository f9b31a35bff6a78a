"""Has fairseq read command lines before hours of work depend on them."""

from recipes.common.errors import RecipeError
from recipes.common.experiment import Experiment, generate_command, train_command
from recipes.common.fairseq_flags import Refused, read, refusal
from recipes.common.run import STAGES, Run
from recipes.common.sources import pair_tests


def check_flags(run: Run, experiments: list[Experiment], stages: list[str]) -> None:
    """RecipeError naming file, section and key of the first flag that fairseq refuses."""
    if not set(stages).intersection(STAGES[STAGES.index("train") :]):
        return
    for one in experiments:
        one.made_from()  # any of these stages asks for it
        if "train" in stages:
            _check(run, "train", train_command(one), one)
    if "translate" in stages:
        _check(run, "generate", generate_command(experiments[0], pair_tests(run)[0], run.output_dir))


def _check(run: Run, kind: str, command: list[str], experiment: Experiment | None = None) -> None:
    try:
        read(kind, command[command.index(f"fairseq_cli.{kind}") + 1 :])
    except Refused as error:
        raise RecipeError(refusal(run, kind, str(error), experiment)) from None
