"""Flags of fairseq: their normalized values, which are of hardware, and what fairseq's own parsers say of them."""

from __future__ import annotations

import difflib
import importlib.util
import re
import runpy
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.flags import Flags, literal


def package_directory() -> Path:
    """The plugin's directory, for --user-dir, found without importing the plugin, which would take seconds."""
    spec = importlib.util.find_spec("fairseq_posenc")
    if spec is None or spec.origin is None:
        raise RecipeError(
            "fairseq_posenc is not installed: run `source scripts/env.sh`, or `pip install .` in the repository."
        )
    return Path(spec.origin).parent


@cache
def _hardware() -> dict[str, Any]:
    # Executed as a file, because importing its package imports torch, which would slow down --help.
    return runpy.run_path(str(package_directory() / "hardware.py"))


def without_hardware(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that results depend on: all but those of hardware."""
    return {name: value for name, value in flags.items() if not _hardware()["is_hardware"](name)}


def value_of(value: Any) -> Any:
    """The normalized value of a flag, for JSON: equal for `(0.9, 0.98)` and `(0.90,0.98)`, and for 1 and 1.0."""
    if isinstance(value, str):
        try:
            value = literal(value)
        except ValueError:
            return value
    if isinstance(value, list | tuple):
        return [value_of(one) for one in value]
    if isinstance(value, dict):
        return {str(key): value_of(one) for key, one in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, bool | int | float | None) else str(value)


def whole(flags: Flags, name: str, default: int) -> int:
    """The value of a flag as a whole number."""
    try:
        return int(flags.get(name, default))
    except ValueError:
        raise RecipeError(f"--{name} {flags[name]}: write a whole number.") from None


def normalized(flags: Flags) -> dict[str, Any]:
    """Flags with values that are equal for spellings of the same value, in the order of their names."""
    return {name.replace("-", "_"): value_of(value) if value else True for name, value in sorted(flags.items())}


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
    try:
        return vars(options.parse_args_and_arch(parser, list(words)))
    except ValueError as error:  # raised by the plugin
        raise Refused(" ".join(str(error).split())) from None
