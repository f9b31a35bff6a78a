"""The files of each side of each split of a corpus, and the members of archives that they are extracted from."""

import re
import shutil
import tarfile
import zipfile
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.run import Run
from posenc_experiments.data.context import DOCUMENTS
from posenc_experiments.data.download import archive_path
from posenc_experiments.data.prepared import download_dir
from posenc_experiments.data.sources import Source, split_sources, wanted_sources

SGM = ".sgm"
SEGMENT = re.compile(rb"<seg.*?>(.*)</seg>")
Part = tuple[Path, Path, Path | None]  # of a split: both sides and, for prepare.context, the document of each line


def members(run: Run, directory: Path) -> dict[str, dict[str, Path]]:
    """The members of archives that this pair needs, by archive and name, and where they are extracted to."""
    paths: dict[str, dict[str, Path]] = {}
    for row in wanted_sources(run):
        if row.member is not None:
            paths.setdefault(row.archive, {})[row.member] = _file(run, directory, row)
    return paths


def _file(run: Run, extracted: Path, row: Source) -> Path:
    """The file of a row of sources.tsv."""
    # A split may have several members; '/' is replaced because the member's path is not trusted.
    return extracted / row.archive / row.member.replace("/", "%") if row.member else archive_path(run, row.archive)


def documents(run: Run, split: str) -> Path | None:
    """The file that names the document of each line of a split, if prepare.context needs it."""
    return download_dir(run) / f"{split}.{DOCUMENTS}" if run.recipe.prepare.context else None


def raw_files(run: Run, extracted: Path, split: str) -> list[Part]:
    """The parts of a split, in order."""
    if run.recipe.corpus.sources is None:
        one, other = (download_dir(run) / f"{split}.{side}" for side in (run.source, run.target))
        return [(one, other, documents(run, split))]
    # wanted_sources has checked that both sides have as many files
    rows = zip(*(split_sources(run, split, side) for side in (run.source, run.target)), strict=True)
    return [(_file(run, extracted, one), _file(run, extracted, other), None) for one, other in rows]


def extract(archive: Path, wanted: Mapping[str, Path], table: Path | None) -> None:
    """Extracts members of an archive in one pass, each to its path: no archive can write elsewhere.

    Args:
        wanted: the path for each member, by the member's name.
        table: the file that names the members, for errors.

    Raises:
        RecipeError: a member is missing; names archive and member.
    """
    missing = dict(wanted)
    for name, file in open_members(archive, missing):
        path = missing.pop(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as out:
            if name.endswith(SGM):
                out.writelines(_segments(file, f"{archive}, member {name}"))
            else:
                shutil.copyfileobj(file, out, 1 << 20)
        if not missing:
            return
    raise RecipeError(f"{archive} has no member '{next(iter(missing))}': check {table}.")


def open_members(archive: Path, wanted: Container[str]) -> Iterator[tuple[str, BinaryIO]]:
    """Yields the wanted members in the archive's order; the caller reads each before it takes the next.

    Raises:
        RecipeError: the file is no archive.
    """
    try:
        yield from _members(archive, wanted)
    except (tarfile.ReadError, zipfile.BadZipFile) as error:
        raise RecipeError(
            f"{archive} cannot be read as an archive ({error}): download it again, or, if it is a text, write - as its "
            "member in sources.tsv."
        ) from None


def _members(archive: Path, wanted: Container[str]) -> Iterator[tuple[str, BinaryIO]]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                if (name := info.filename.removeprefix("./")) in wanted and not info.is_dir():
                    with zipped.open(info) as file:
                        yield name, file  # type: ignore[misc]
        return
    # As a stream, which never seeks, so that gigabytes are decompressed only once.
    with tarfile.open(archive, "r|*") as tarred:
        for member in tarred:
            name = member.name.removeprefix("./")
            if name in wanted and (extracted := tarred.extractfile(member)) is not None:
                yield name, extracted  # type: ignore[misc]


def _segments(file: BinaryIO, where: str) -> Iterator[bytes]:
    """The lines of a WMT test set in SGM: the text between <seg> tags, with entities unresolved, as in SacreBLEU."""
    for number, line in enumerate(file, 1):
        if is_segment(line):
            segment = SEGMENT.match(line)
            if segment is None:
                raise RecipeError(f"{where}, line {number}: this <seg> does not end on its line; fix it.")
            yield segment[1] + b"\n"


def is_segment(line: bytes) -> bool:
    """Whether a line of SGM is a sentence."""
    return line.startswith(b"<seg ")
