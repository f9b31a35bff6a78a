"""Errors of an export."""

from ..errors import Refusal


class ExportError(Refusal, RuntimeError):
    """The export failed or was refused; nothing was written."""
