"""Checks command lines with fairseq's own parser, and builds their models, before hours of work depend on them."""

from argparse import Namespace
from contextlib import suppress
from typing import Any

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.experiment.check_settings import Checked, check_settings
from posenc_experiments.experiment.command_lines import generate_command, train_command
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.fairseq_flags import Refused, read, refusal

#: entries of the dictionaries of models that are built only to find flags that do not fit together
SOME_VOCABULARY = 8
#: parameters of a model that no machine of today trains with this package
MOST_PARAMETERS = 10**11
#: flags that these models ignore: they depend on the vocabulary, or need the other processes of the training
UNCHECKED = {"adaptive_softmax_cutoff": None, "adaptive_input": False, "base_layers": 0}


def check_flags(experiments: list[Experiment], stages: list[str]) -> list[Checked]:
    """Checks the command lines that these stages have still to run.

    Returns:
        The commands, for `check_data` to check when the data is prepared.

    Raises:
        RecipeError: fairseq refuses a flag, or a flag cannot lead to a result; names file, section and key.
    """
    waiting = [one for one in experiments if not one.is_done("train")]
    checked = [read_training(one) for one in waiting if "train" in stages]
    if "translate" in stages and not all(one.is_done("translate") for one in experiments):
        checked.append(read_generation(experiments[0]))
    for each in checked:
        check_settings(each)
        if each.experiment is not None:
            _require_updates(each.experiment, each.settings)
    return checked


def read_training(experiment: Experiment) -> Checked:
    """The training command of an experiment, as fairseq reads it."""
    # Imported here, because it imports torch, which would slow down --help.
    from fairseq_posenc.errors import FlagError
    from posenc_experiments.experiment.unallocated import ReadsValues, build_unallocated

    try:
        settings = _read("train", train_command(experiment))
        if "position_encoding" in settings:  # an architecture of this package
            with suppress(ReadsValues):
                _require_trainable(build_unallocated(Namespace(**settings | UNCHECKED), SOME_VOCABULARY))
        return Checked(experiment, experiment.run, settings)
    except (Refused, FlagError) as error:
        raise RecipeError(refusal(experiment.run, str(error), experiment)) from None


def _require_trainable(model: Any) -> None:
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    if (total := sum(sizes.values())) > MOST_PARAMETERS:
        largest = max(sizes, key=lambda name: sizes[name])
        raise Refused(f"the model has {total:,} parameters, {sizes[largest]:,} of them in {largest}: make it smaller.")


def _require_updates(experiment: Experiment, settings: dict[str, Any]) -> None:
    # Imported here, because it imports torch.
    from posenc_experiments.experiment.first_updates import require_updates

    try:
        require_updates(settings)
    except Refused as error:
        raise RecipeError(refusal(experiment.run, str(error), experiment)) from None


def read_generation(experiment: Experiment) -> Checked:
    """The generation command, as fairseq reads it; its flags are the same for all experiments of a run."""
    run = experiment.run
    try:
        return Checked(None, run, _read("generate", generate_command(experiment, pair_tests(run)[0], run.output_dir)))
    except Refused as error:
        raise RecipeError(refusal(run, str(error))) from None


def _read(kind: str, command: list[str]) -> dict[str, Any]:
    return read(kind, command[command.index(f"fairseq_cli.{kind}") + 1 :])
