"""Errors that the user can fix: each prints one sentence, and the command exits with status 1."""

import errno
import sys
from collections.abc import Iterable
from difflib import get_close_matches


class RecipeError(Exception):
    """An error that the user can fix: its text is one sentence that names the file, line or flag, and the fix."""


#: errors of files and disks that the user can fix
FILE_ERRORS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG),
)


def meant(name: str, names: Iterable[str]) -> str:
    """The question after an unknown name: ` (did you mean sinusoidal?)`; empty if no known name is like it."""
    return "".join(f" (did you mean {near}?)" for near in get_close_matches(name, [*names], 1))


def sentence(error: Exception) -> str | None:
    """The sentence to print for an error; None if it is a bug, which needs its traceback."""
    # Looked up, not imported: the plugin imports torch and fairseq, which takes seconds.
    plugin = sys.modules.get("fairseq_posenc.errors")
    if isinstance(error, RecipeError) or (plugin is not None and isinstance(error, plugin.Refusal)):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        return f"the package {package} is not installed: run pip install '.[recipes]' in the repository."
    if isinstance(error, OSError) and error.errno in FILE_ERRORS:
        path = error.filename2 or error.filename  # of a renamed file, the name that it should have
        where = f"{path}: " if path else ""
        return f"{where}{error.strerror}: name another path, free some space, or change its permissions."
    return None
