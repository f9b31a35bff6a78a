"""Why an export was refused or given up."""

from ..errors import Refusal


class ExportError(Refusal, RuntimeError):
    """Nothing was exported."""


def one_line(error: Exception) -> str:
    """What it says, as a part of such a sentence."""
    return " ".join(str(error).split()).removesuffix(".")
