"""Parses command lines with fairseq's own parsers, and finds where a flag that fairseq refuses was set."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from posenc_experiments.base.run import Run
from posenc_experiments.experiment.request import Request


class Refused(Exception):
    """fairseq refuses a command line; the text is its message."""


def read(kind: str, words: Iterable[str]) -> dict[str, Any]:
    """The arguments of a command line and their values, as fairseq parses it.

    Args:
        kind: "train" or "generate", for fairseq-train or fairseq-generate.
        words: the command line after the program's name.

    Raises:
        Refused: fairseq or the plugin refuses the command line.
    """
    return _read(kind, tuple(words))


@cache
def _read(kind: str, words: tuple[str, ...]) -> dict[str, Any]:
    # Imported here, because it imports torch, which would slow down --help.
    from fairseq import options

    import fairseq_posenc  # noqa: F401 - registers the architectures

    def refuse(message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (--[^\s=]+)", message)
        near = difflib.get_close_matches(unknown[1], parser._option_string_actions, 1) if unknown else []
        message = message.replace("invalid <lambda> value", "invalid value")
        raise Refused(" ".join(message.split()) + "".join(f"; did you mean {flag}?" for flag in near))

    parser = options.get_training_parser() if kind == "train" else options.get_generation_parser()
    parser.error = refuse
    parser.print_help = lambda file=None: None
    try:
        found = vars(options.parse_args_and_arch(parser, list(words)))
    except SystemExit:  # raised by --help
        raise Refused("one of the flags only prints something and exits; leave it out") from None
    except ValueError as error:  # raised by the plugin
        raise Refused(" ".join(str(error).split())) from None
    given: dict[int, str] = {}  # by the id of what argparse makes of a flag's names
    for flag in (word.partition("=")[0] for word in words):
        action = parser._option_string_actions.get(flag)
        if action is not None and given.setdefault(id(action), flag) != flag:
            raise Refused(f"{given[id(action)]} and {flag} are the same flag; leave one out")
    return found


def where_set(run: Run, request: Request | None, flag: str) -> str | None:
    """The place where a flag of a training was set (of the generation, without a request); None if it was not."""
    recipe = run.recipe
    if request is None:
        return recipe.where("generate", flag) if flag in recipe.generate else None
    if flag in run.extra:
        return f"--{flag} after --"
    if flag in request.flags:
        return recipe.where("experiments", request.name)
    sections = {"train": recipe.train, "model": recipe.model}
    return next((recipe.where(name, flag) for name, flags in sections.items() if flag in flags), None)


def file_problem(name: str) -> str | None:
    """A message that says why a flag cannot name this file, and how to fix it; None if it can."""
    if Path(name).is_dir():
        return "this is a directory; name a file in it."
    return None if Path(name).is_file() else "there is no such file; name another, or leave the flag out."


def refusal(run: Run, complaint: str, request: Request | None = None) -> str:
    """A sentence with fairseq's complaint and the place where the flag it names was set."""
    recipe = run.recipe
    if request is not None and complaint.startswith("argument --arch"):
        where = f"{recipe.where('experiments', request.name)}, or {recipe.where('model', 'size')}"
        return f"{where}: there is no architecture '{request.arch}'."
    flags = re.findall(r"--([a-zA-Z][\w-]*)", complaint)
    found = next(filter(None, (where_set(run, request, flag) for flag in flags)), None)
    where = found or str(recipe.path) + (f", experiment {request.name}" if request else "")
    return f"{where}: {complaint}"
