"""Archives of kept results: one for each experiment, with a directory for each seed."""

import tempfile
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import atomic_path

SUFFIX = ".zip"
#: all entries have the oldest date that the format knows, so that equal results make equal archives
DATE = (1980, 1, 1, 0, 0, 0)


def pack(archive: Path, directories: Sequence[Path]) -> None:
    """Adds directories (seedN) to an archive, in place of those that have the same names there."""
    texts = {}
    names = {directory.name for directory in directories}
    if archive.exists():
        with zipfile.ZipFile(archive) as old:
            texts = {name: old.read(name) for name in old.namelist() if name.split("/")[0] not in names}
    for directory in directories:
        texts |= {f"{directory.name}/{path.name}": path.read_bytes() for path in directory.iterdir()}
    archive.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(archive) as temporary, zipfile.ZipFile(temporary, "w") as new:
        for name in sorted(texts):
            new.writestr(zipfile.ZipInfo(name, DATE), texts[name], zipfile.ZIP_DEFLATED, compresslevel=9)


def unpacked(path: Path) -> Path | None:
    """A temporary directory with the contents of an archive, or of all archives below a directory; None without any.

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
            except (zipfile.BadZipFile, OSError) as error:
                raise RecipeError(f"{archive} is no archive of kept results ({error}): keep them again.") from None
    return _copy(path.with_suffix("") if path.is_file() else path) if archives else None


def _copy(path: Path) -> Path:
    return Path(_scratch().name, *path.resolve().parts[1:])


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fairseq_posenc-results-")
