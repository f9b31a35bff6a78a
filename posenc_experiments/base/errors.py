"""Errors that the user can fix: each prints one sentence, and the command exits with status 1."""

import errno
import sys


class RecipeError(Exception):
    """An error that the user can fix: its text is one sentence that names the file, line or flag, and the fix."""


FIXES = {
    errno.ENOSPC: "free some space and run again, or name another directory",
    errno.EDQUOT: "delete some of your files there and run again, or name another directory",
    errno.EACCES: "change its permissions, or name another directory",
    errno.EPERM: "change its permissions, or name another directory",
    errno.ENOTDIR: "this must be a directory, but it is a file: name another",
    errno.EEXIST: "this must be a directory, but it is a file: name another",
    errno.EISDIR: "this must be a file, but it is a directory: move it away",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.EROFS: "name a directory that can be written",
}


def sentence(error: Exception) -> str | None:
    """The sentence to print for an error; None if it is a bug, which needs its traceback."""
    # Looked up, not imported: the plugin imports torch and fairseq, which takes seconds.
    plugin = sys.modules.get("fairseq_posenc.errors")
    if isinstance(error, RecipeError) or (plugin is not None and isinstance(error, plugin.Refusal)):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        return f"the package {package} is not installed: run pip install '.[recipes]' in the repository."
    if isinstance(error, OSError) and error.errno in FIXES:
        path = error.filename2 or error.filename  # of a renamed file, the name that it should have
        where = f"{path}: " if path else ""
        return f"{where}{error.strerror}: {FIXES[error.errno]}."
    return None
