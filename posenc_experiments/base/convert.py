"""Functions that convert the text of a .conf to values, or raise a ValueError that says what is wrong with the text."""

import ast
import re
import shlex
from collections.abc import Callable
from typing import Any


def whole(minimum: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not re.fullmatch(r"\d+", text) or int(text) < minimum:
            raise ValueError(f"'{text}' is not a whole number of at least {minimum}")
        return int(text)

    return convert


def boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"'{text}' is not true or false")
    return text == "true"


def name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text):
        raise ValueError(f"'{text}' is not a name of letters, digits, '.', '_' and '-'")
    return text


def words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def shell_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"'{text}' cannot be split into words ({error})") from None


def some_words(text: str) -> list[str]:
    found = words(text)
    if not found or len(set(found)) != len(found):
        raise ValueError(f"'{text}' must name at least one, and each once")
    return found


def ratio(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text) or 0 < float(text) < 1:
        raise ValueError(f"'{text}' is not a ratio of at least 1, such as 1.5, or 0 for any")
    return float(text)


def share(text: str) -> float:
    if not re.fullmatch(r"0?\.\d+|1(\.0*)?", text) or not float(text):
        raise ValueError(f"'{text}' is not a share above 0, 1 at most, such as 0.9995")
    return float(text)


def folder_name(text: str) -> str:
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)*", text) or {".", ".."} & set(text.split("/")):
        raise ValueError(f"'{text}' is not the name of a directory under --data-dir, such as wmt/download")
    return text


def literal(text: str) -> Any:
    """The value of a Python literal."""
    try:
        return ast.literal_eval(text.strip())
    except (SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError(f"'{text}' is not a Python literal") from None


def choice(choices: tuple[str, ...]) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text not in choices:
            raise ValueError(f"'{text}' is not one of {', '.join(choices)}")
        return text

    return convert


def pairs(text: str) -> list[str]:
    for pair in some_words(text):
        source, _, target = pair.partition("-")
        if not source or not target or "-" in target or source == target:
            raise ValueError(f"'{pair}' is not a pair of two languages such as en-de")
    return words(text)
