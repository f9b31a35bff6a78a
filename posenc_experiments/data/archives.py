"""Extracts members of archives in one pass, to paths that the caller chooses: no archive can write elsewhere."""

import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from gzip import BadGzipFile
from lzma import LZMAError
from pathlib import Path
from typing import BinaryIO

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import atomic_path

DAMAGE = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, BadGzipFile, LZMAError)
SEGMENT = re.compile(rb"<seg.*?>(.*)</seg>")


def extract(archive: Path, members: Mapping[str, Path], table: Path) -> None:
    """Writes each member to its path.

    Args:
        members: the path for each member, by the member's name.
        table: the file that names the members, for errors.

    Raises:
        RecipeError: a member is missing or damaged; names archive and member.
    """
    missing = dict(members)
    with _damage(archive, missing):
        for name, file in _open_members(archive, missing):
            final = missing[name]
            with atomic_path(final) as temporary, open(temporary, "wb") as out:
                if name.endswith(".sgm"):
                    out.writelines(segments(file, f"{archive}, member {name}"))
                else:
                    shutil.copyfileobj(file, out, 1 << 20)
            del missing[name]
            if not missing:
                return
    raise RecipeError(f"{archive} has no member '{next(iter(missing))}': check {table}.")


@contextmanager
def _damage(archive: Path, missing: Mapping[str, Path]) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        # Names the first missing member, because a damaged stream hides all that follow.
        raise RecipeError(
            f"{archive} is damaged ({str(error) or type(error).__name__}), and member '{next(iter(missing))}' cannot "
            "be extracted: delete the archive and run the stage download again."
        ) from None


def _open_members(archive: Path, wanted: Mapping[str, Path]) -> Iterator[tuple[str, BinaryIO]]:
    """Yields the wanted members in the archive's order; the caller reads each before it takes the next."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                if _plain(info.filename) in wanted and not info.is_dir():
                    with zipped.open(info) as file:
                        yield _plain(info.filename), file  # type: ignore[misc]
        return
    # As a stream, which never seeks, so that gigabytes are decompressed only once.
    with tarfile.open(archive, "r|*") as tarred:
        for member in tarred:
            if _plain(member.name) in wanted and (extracted := tarred.extractfile(member)) is not None:
                with extracted:
                    yield _plain(member.name), extracted  # type: ignore[misc]


def _plain(name: str) -> str:
    return name.removeprefix("./")


def segments(file: BinaryIO, where: str) -> Iterator[bytes]:
    """The lines of a WMT test set in SGM: the text between <seg> tags, with entities unresolved, as in SacreBLEU."""
    for number, line in enumerate(file, 1):
        if line.startswith(b"<seg "):
            found = SEGMENT.match(line)
            if found is None:
                raise RecipeError(f"{where}, line {number}: this <seg> does not end on its line; fix it.")
            yield found[1] + b"\n"
