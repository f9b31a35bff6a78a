"""Errors of an export."""

from ..errors import Refusal


class ExportError(Refusal, RuntimeError):
    """The export failed or was refused; nothing was written."""


def one_line(error: Exception) -> str:
    """The error's message on one line without its final period, as a part of a sentence."""
    return " ".join(str(error).split()).removesuffix(".")
