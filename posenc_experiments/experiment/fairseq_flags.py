"""What fairseq itself makes of command lines: which ones it refuses, and the arguments that follow from the others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from posenc_experiments.base.run import Run

if TYPE_CHECKING:
    from posenc_experiments.experiment.experiment import Experiment


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


def where_set(run: Run, experiment: Experiment | None, flag: str) -> str | None:
    """Where a flag of an experiment's training (or, without one, of the generation) was written; None if nowhere."""
    recipe = run.recipe
    if experiment is None:
        return recipe.where("generate", flag) if flag in recipe.generate else None
    if flag in run.extra:
        return f"--{flag} after --"
    if flag in experiment.flags:
        return recipe.where("experiments", experiment.name)
    sections = {"train": recipe.train, "model": recipe.model}
    return next((recipe.where(name, flag) for name, flags in sections.items() if flag in flags), None)


def file_problem(name: str) -> str | None:
    """Why a flag cannot name this file, and what to do; None if it can."""
    if Path(name).is_dir():
        return "this is a directory; name a file in it."
    return None if Path(name).is_file() else "there is no such file; name another, or leave the flag out."


def refusal(run: Run, complaint: str, experiment: Experiment | None = None) -> str:
    """One sentence that says where the flag that fairseq complains of was written."""
    recipe = run.recipe
    if experiment is not None and complaint.startswith("argument --arch"):
        where = f"{recipe.where('experiments', experiment.name)}, or {recipe.where('model', 'size')}"
        return f"{where}: there is no architecture '{experiment.arch}'."
    flags = re.findall(r"--([a-z][a-z0-9-]*)", complaint)
    found = next(filter(None, (where_set(run, experiment, flag) for flag in flags)), None)
    return f"{found or recipe.path}: fairseq says: {complaint}"
