"""Errors for users: the message is one sentence that names the cause and the fix, printed without a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from types import TracebackType

try:
    from hydra.errors import CompactHydraException
except Exception:  # the encodings work without fairseq, which brings hydra, or with one that cannot be imported
    CompactHydraException = Exception  # type: ignore[misc,assignment]

#: environment variable that, set to 1, makes commands print the traceback of a refusal
TRACEBACK = "FAIRSEQ_POSENC_TRACEBACK"


class Refusal(CompactHydraException):  # fairseq-hydra-train prints only the message of this class
    """Input that cannot be used. Non-printable characters in the message are escaped, so that it is one line."""

    def __init__(self, message: object) -> None:
        super().__init__("".join(map(_printable, str(message))))


class FlagError(Refusal, ValueError):
    """A flag, an option or a setting cannot be used."""


class ExportError(Refusal, RuntimeError):
    """A model cannot be exported; nothing was written."""


class CheckpointError(Refusal, RuntimeError):
    """A checkpoint cannot be used."""


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def brief(error: BaseException) -> str:
    """The type and the first 300 characters of an error's message, on one line."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".: ")
    return text if len(text) <= 300 else f"{text[:300].rstrip()} ..."


def few(names: Iterable[object]) -> str:
    """Joins the first five names by commas and counts the others; "none" if there are no names."""
    listed = [str(name) for name in names]
    others = len(listed[5:])
    return ", ".join(listed[:5]) + (f" and {others} more" if others else "") or "none"


def hide_tracebacks() -> None:
    """Makes Python print only the message of an uncaught refusal, without a traceback."""
    previous = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, Refusal) and os.environ.get(TRACEBACK, "0") in ("", "0"):
            print(f"Error: {error}", file=sys.stderr)
        else:
            previous(kind, error, traceback)

    sys.excepthook = show
