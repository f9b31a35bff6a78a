"""Why an export was refused or given up."""


class ExportError(RuntimeError):
    """Nothing was exported; the message is one sentence that says why, and what to do."""


def one_line(error: Exception) -> str:
    """What it says, as a part of such a sentence."""
    return " ".join(str(error).split()).removesuffix(".")
