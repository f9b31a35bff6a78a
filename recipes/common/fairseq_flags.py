"""What fairseq itself makes of command lines: which it refuses, and what a whole configuration follows from one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from recipes.common.run import Run

if TYPE_CHECKING:
    from recipes.common.experiment import Experiment


class Refused(Exception):
    """fairseq's complaint about a command line."""


def read(kind: str, words: Iterable[str]) -> dict[str, Any]:
    """The arguments that fairseq makes of a command line, each with its value.

    Args:
        kind: "train" or "generate", whose command line it is.
        words: what stands behind the program's name.

    Raises:
        Refused: fairseq, or the plugin, does not take it.
    """
    return _read(kind, tuple(words))


@cache
def _read(kind: str, words: tuple[str, ...]) -> dict[str, Any]:
    # Here, because it imports torch, which --help and --dry-run need not wait for.
    from fairseq import options

    import fairseq_posenc  # noqa: F401 - registers the architectures

    def refuse(message: str) -> NoReturn:
        raise Refused(" ".join(message.split()))

    parser = options.get_training_parser() if kind == "train" else options.get_generation_parser()
    parser.error = refuse
    try:
        return vars(options.parse_args_and_arch(parser, list(words)))
    except SystemExit:  # of --help
        raise Refused("one of the flags only prints something and ends") from None
    except ValueError as error:  # the plugin's own refusal
        raise Refused(" ".join(str(error).split())) from None


def refusal(run: Run, kind: str, complaint: str, experiment: Experiment | None = None) -> str:
    """One sentence that says where the flag that fairseq complains of was written."""
    recipe = run.recipe
    if experiment is not None and complaint.startswith("argument --arch"):
        where = f"{recipe.where('experiments', experiment.name)}, or {recipe.where('model', 'size')}"
        return f"{where}: there is no architecture '{experiment.arch}'."
    sections = {"generate": recipe.generate} if kind == "generate" else {"model": recipe.model, "train": recipe.train}
    where = str(recipe.path)
    for flag in re.findall(r"--([a-z][a-z0-9-]*)", complaint):
        if kind == "train" and flag in run.extra:
            where = f"--{flag} behind --"
        elif experiment is not None and flag in experiment.flags:
            where = recipe.where("experiments", experiment.name)
        elif found := [section for section, flags in sections.items() if flag in flags]:
            where = recipe.where(found[-1], flag)
        else:
            continue
        break
    return f"{where}: fairseq says: {complaint}"
