"""Archives of kept results: one for each experiment, with a directory for each seed."""

import json
import lzma
import os
import re
import shutil
import struct
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from posenc_experiments.base.errors import FILE_ERRORS, RecipeError
from posenc_experiments.base.files import atomic_path, fingerprint
from posenc_experiments.experiment.layout import ANALYSIS, SACREBLEU

SUFFIX = ".zip"
#: how an archive of kept results starts: with a file of a seed
START = re.compile(rb"PK\x03\x04.{26}seed\d+/", re.DOTALL)
#: what zipfile raises for damage, encryption and unknown compression; the damage of a bz2 file is an OSError
UNREADABLE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError, struct.error, OSError)
FOREIGN = "no archive of kept results"
#: the archives that this process has unpacked, by the paths of their contents
_ARCHIVES: dict[str, str] = {}
#: all entries have the oldest date that the format knows, so that equal results make equal archives
DATE = (1980, 1, 1, 0, 0, 0)


def read(archive: Path) -> dict[str, bytes]:
    """The files of an archive, of which there may be none yet."""
    if not os.path.lexists(archive):
        return {}
    try:
        if not archive.is_file():
            raise ValueError("no regular file")
        with zipfile.ZipFile(archive) as opened:
            return {name: opened.read(name) for name in opened.namelist()}
    except UNREADABLE as error:
        raise RecipeError(f"{archive} is {FOREIGN} ({error}): delete it, or name another directory.") from None


def require_same(archive: Path, files: Mapping[str, bytes]) -> None:
    """RecipeError if an archive has other results of a seed than these, or of another search.

    Figures of `analyse` may be new.
    """
    kept = read(archive)
    different = [name for name in files.keys() & kept.keys() if kept[name] != files[name]]
    if different := sorted(name for name in different if Path(name).name != ANALYSIS):
        what = f"other results of {different[0].split('/')[0]} than these ({Path(different[0]).name} differs)"
    elif _searches(kept) not in (set(), _searches(files)):
        what = "translations by another search than these"
    else:
        return
    raise RecipeError(f"{archive} has {what}: keep these in another directory.")


def _searches(files: Mapping[str, bytes]) -> set[str]:
    """The fingerprints of the searches that made translations, as their scores record them."""
    scores = [json.loads(text) for name, text in files.items() if name.endswith(f".{SACREBLEU}")]
    return {fingerprint(row.get("translation")) for rows in scores for row in rows}


def pack(archive: Path, files: Mapping[str, bytes]) -> None:
    """Adds files of seeds (seedN/NAME) to an archive."""
    texts = read(archive) | dict(files)
    with atomic_path(archive) as temporary, zipfile.ZipFile(temporary, "w") as new:
        for name in sorted(texts):
            new.writestr(zipfile.ZipInfo(name, DATE), texts[name], zipfile.ZIP_DEFLATED, compresslevel=9)


def unpacked(path: Path) -> Path:
    """A temporary directory for the contents of an archive, or of all archives below a directory; missing without any.

    It lasts as long as the process, and its path ends in that of the original, so that both sort alike.

    Raises:
        RecipeError: an archive is damaged.
    """
    archives = [path] if path.is_file() else [one for one in path.rglob(f"*{SUFFIX}") if one.is_file()]
    for archive in archives:
        target = _copy(archive.with_suffix(""))
        _ARCHIVES[str(target)] = str(archive)
        if not target.is_dir():
            try:
                with zipfile.ZipFile(archive) as opened:
                    opened.extractall(target)
            except UNREADABLE as error:
                shutil.rmtree(target, ignore_errors=True)
                if isinstance(error, OSError) and error.errno in FILE_ERRORS:
                    raise
                with archive.open("rb") as file:
                    if archive == path or START.match(file.read(64)):
                        raise RecipeError(f"{archive} is {FOREIGN} ({error}): keep them again.") from None
                note(f"{archive} is passed over, because it is {FOREIGN} ({error}).")
    return _copy(path.with_suffix("") if path.is_file() else path)


def original(text: str) -> str:
    """A text with the archives' paths in place of those of their temporary contents."""
    for target, archive in _ARCHIVES.items():
        text = text.replace(target, archive)
    return text


def is_kept(directory: Path) -> bool:
    """Whether this process unpacked a directory from an archive."""
    return directory.is_relative_to(_scratch().name)


def note(text: str) -> None:
    """Tells the user what is not read, beside the output."""
    print(f"Note: {text}", file=sys.stderr)


def _copy(path: Path) -> Path:
    return Path(_scratch().name, *path.resolve().parts[1:])


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fairseq_posenc-results-")
