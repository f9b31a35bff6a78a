"""Why an export was refused or given up."""


class ExportError(RuntimeError):
    """Nothing was exported; the message is one sentence that says why, and what to do."""
