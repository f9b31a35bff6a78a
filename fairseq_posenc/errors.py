"""Refusals: errors whose message is one sentence that says what cannot be used, why, and what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from types import TracebackType

from hydra.errors import CompactHydraException

#: set to 1, this environment variable shows where a refusal was raised
TRACEBACK = "FAIRSEQ_POSENC_TRACEBACK"


class Refusal(CompactHydraException):  # of which fairseq-hydra-train prints the message alone
    """Something given cannot be used. The message is one line of printable text, whatever bytes it quotes."""

    def __init__(self, message: object) -> None:
        super().__init__("".join(map(_printable, str(message))))


class FlagError(Refusal, ValueError):
    """A flag, an option or a setting cannot be used."""


class CheckpointError(Refusal, RuntimeError):
    """A checkpoint cannot be used."""


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def brief(error: BaseException, most: int = 300) -> str:
    """The kind and the beginning of an error's message, as a part of a sentence."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".: ")
    return text if len(text) <= most else f"{text[:most].rstrip()} ..."


def few(names: Iterable[object], most: int = 5) -> str:
    """The first `most` names, and how many more there are."""
    listed = [str(name) for name in names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more or "none"


def show_sentences() -> None:
    """Lets a command that ends in a refusal print its sentence without a traceback. Called again, it does nothing."""
    previous = sys.excepthook
    if getattr(previous, "shows_sentences", False):
        return

    def show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, Refusal) and os.environ.get(TRACEBACK, "0") in ("", "0"):
            print(f"Error: {error}", file=sys.stderr)
        else:
            previous(kind, error, traceback)

    show.shows_sentences = True  # type: ignore[attr-defined]
    sys.excepthook = show
