"""Archives of kept results: one for each experiment, with a directory for each seed."""

import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import atomic_path
from posenc_experiments.experiment.layout import ANALYSIS

SUFFIX = ".zip"
#: all entries have the oldest date that the format knows, so that equal results make equal archives
DATE = (1980, 1, 1, 0, 0, 0)


def read(archive: Path) -> dict[str, bytes]:
    """The files of an archive, of which there may be none yet."""
    if not archive.exists():
        return {}
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def require_same(archive: Path, files: Mapping[str, bytes]) -> None:
    """RecipeError if an archive has other results of a seed than these; figures of `analyse` may be new."""
    kept = read(archive)
    for name in sorted(files.keys() & kept.keys()):
        if kept[name] != files[name] and Path(name).name != ANALYSIS:
            raise RecipeError(
                f"{archive} has other results of {name.split('/')[0]} than these ({Path(name).name} differs): keep "
                "these in another directory, or delete the archive to keep these in its place."
            )


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
    archives = [path] if path.is_file() else list(path.rglob(f"*{SUFFIX}"))
    for archive in archives:
        target = _copy(archive.with_suffix(""))
        if not target.is_dir():
            try:
                with zipfile.ZipFile(archive) as opened:
                    opened.extractall(target)
            except (zipfile.BadZipFile, zlib.error, OSError) as error:
                raise RecipeError(f"{archive} is no archive of kept results ({error}): keep them again.") from None
    return _copy(path.with_suffix("") if path.is_file() else path)


def _copy(path: Path) -> Path:
    return Path(_scratch().name, *path.resolve().parts[1:])


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fairseq_posenc-results-")
