"""Flags of fairseq: their normalized values, which are of hardware, and what fairseq's own parsers say of them."""

from __future__ import annotations

import argparse
import ast
import re
import runpy
from collections.abc import Collection, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any, NoReturn

from posenc_experiments.base.errors import RecipeError, meant
from posenc_experiments.base.flags import Flags
from posenc_experiments.base.run import ROOT

PLUGIN = ROOT / "fairseq_posenc"  # for --user-dir


# Executed as a file, because importing its package imports torch, which would slow down --help.
effects = SimpleNamespace(**runpy.run_path(str(PLUGIN / "effects.py")))
#: the flags that `derive_batch` derives from train.batch-tokens
DERIVED = ("max-tokens", "update-freq")


def counted(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that an experiment's fingerprint counts: those of other effects than speed and reports.

    Those that may follow from train.batch-tokens are left out.
    """
    ignored = ("speed", "report")
    return {name: value for name, value in flags.items() if name not in DERIVED and effects.effect(name) not in ignored}


def precision(flags: Collection[str]) -> str:
    """The precision of a training with these flags: fp32, or the flag of another one."""
    return next((name for name in effects.PRECISIONS if name in flags), "fp32")


def with_precision(flags: Mapping[str, Any], chosen: str) -> dict[str, Any]:
    """The flags with this precision in place of others; a memory-efficient variant of it stays."""
    others = [name for name in effects.PRECISIONS if not name.endswith(chosen)]
    kept = {name: value for name, value in flags.items() if name not in others}
    return kept if chosen == "fp32" or precision(kept) != "fp32" else {**kept, chosen: ""}


def value_of(value: object) -> Any:
    """The normalized value of a flag, for JSON: equal for `(0.9, 0.98)` and `(0.90,0.98)`, and for 1 and 1.0."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, TypeError):
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


@cache
def read(stage: str, words: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of a command line and their values, as fairseq parses it.

    Args:
        stage: "train" or "translate", for fairseq-train or fairseq-generate.
        words: the command line after the program's name.

    Raises:
        ValueError: fairseq or the plugin refuses the command line.
    """
    # Imported here, because it imports torch, which would slow down --help.
    from fairseq import options

    from fairseq_posenc.errors import FlagError  # also registers the architectures

    def refuse(message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (--[^\s=]+)", message)
        choice = re.match(r"argument .*invalid choice: '(.*?)' \(choose from (.*)\)$", message)
        near = meant(unknown[1], parser._option_string_actions) if unknown else ""
        near = meant(choice[1], re.findall(r"[\w.-]+", choice[2])) if choice else near
        message = message.replace("invalid <lambda> value", "invalid value")
        raise FlagError(" ".join(message.split()) + near)

    parser = options.get_training_parser() if stage == "train" else options.get_generation_parser()

    def convert(action: argparse.Action, text: str) -> Any:
        try:
            return convert_by_fairseq(action, text)
        except SyntaxError:  # of Python's literals, as which fairseq reads lists
            raise argparse.ArgumentError(action, f"invalid value: {text!r}") from None

    parser.error, parser._get_value, convert_by_fairseq = refuse, convert, parser._get_value
    return vars(options.parse_args_and_arch(parser, list(words)))
