"""What a user is told when something goes wrong: one sentence, and exit status 1."""

import errno
import sys


class RecipeError(Exception):
    """Something that the user can fix: its text is one sentence that names the file, line or flag, and the fix."""


FIXES = {
    errno.ENOSPC: "free some space and run again, or give other directories by --data-dir and --output-dir",
    errno.EDQUOT: "delete something of yours there and run again, or give other directories by --data-dir and "
    "--output-dir",
    errno.EACCES: "change its permissions, or give other directories by --data-dir and --output-dir",
    errno.EPERM: "change its permissions, or give other directories by --data-dir and --output-dir",
    errno.ENOTDIR: "a file stands where a directory is wanted: give another by --data-dir or --output-dir",
    errno.EEXIST: "a file stands where a directory is wanted: give another by --data-dir or --output-dir",
    errno.EISDIR: "a directory stands where a file is wanted: move it away",
    errno.ENAMETOOLONG: "give a shorter one",
    errno.EROFS: "give directories that can be written by --data-dir and --output-dir",
}


def sentence(error: Exception) -> str | None:
    """What to tell the user; None of what a user cannot fix."""
    # Not imported: the plugin would import torch and fairseq, which take seconds.
    plugin = sys.modules.get("fairseq_posenc.errors")
    if isinstance(error, RecipeError) or (plugin is not None and isinstance(error, plugin.Refusal)):
        return str(error)
    if isinstance(error, OSError) and error.errno in FIXES:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}: {FIXES[error.errno]}."
    return None
