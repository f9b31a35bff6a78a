"""What a user is told when something goes wrong: one sentence, and a non-zero exit."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click


class RecipeError(Exception):
    """Something that the user can mend: its text is one sentence naming file, line or flag, and the mend."""


MENDS = {
    errno.ENOSPC: "free some space and run again, or give other directories by --data-dir and --output-dir",
    errno.EDQUOT: "delete something of yours there and run again, or give other directories by --data-dir and "
    "--output-dir",
    errno.EACCES: "mend its permissions, or give other directories by --data-dir and --output-dir",
    errno.EPERM: "mend its permissions, or give other directories by --data-dir and --output-dir",
    errno.ENOTDIR: "a file stands where a directory is wanted: give another by --data-dir or --output-dir",
    errno.EEXIST: "a file stands where a directory is wanted: give another by --data-dir or --output-dir",
    errno.EISDIR: "a directory stands where a file is wanted: move it away",
    errno.ENAMETOOLONG: "give a shorter one",
    errno.EROFS: "give directories that can be written by --data-dir and --output-dir",
}


def fail(text: str) -> NoReturn:
    """Ends with one sentence."""
    click.echo(f"error: {text}", err=True)
    sys.exit(1)


@contextmanager
def one_sentence() -> Iterator[None]:
    """Ends the program with one sentence where a user can mend what went wrong."""
    try:
        yield
    except RecipeError as error:
        fail(str(error))
    except OSError as error:
        if error.errno not in MENDS:
            raise
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{where}{error.strerror}: {MENDS[error.errno]}.")
