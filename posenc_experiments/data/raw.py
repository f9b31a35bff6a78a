"""The files of each side of each split of a corpus, and the members of archives that they are extracted from."""

import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from gzip import BadGzipFile
from lzma import LZMAError
from pathlib import Path
from typing import BinaryIO

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import atomic_path
from posenc_experiments.base.run import Run
from posenc_experiments.data.context import DOCUMENTS
from posenc_experiments.data.download import archive_path
from posenc_experiments.data.own_text import find_splits
from posenc_experiments.data.prepared import download_dir
from posenc_experiments.data.sources import Source, wanted_sources

DAMAGE = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, BadGzipFile, LZMAError)
SEGMENT = re.compile(rb"<seg.*?>(.*)</seg>")


@dataclass(frozen=True)
class Raw:
    """The file of one side of one part of a split."""

    path: Path
    name: str  # for messages: the user's own file, or archive and member
    known_lines: int | None = None  # from sources.tsv
    documents: Path | None = None


def has_members(run: Run) -> bool:
    """Whether this pair needs members of archives, which must be extracted."""
    return run.recipe.corpus.sources is not None and any(row.member is not None for row in wanted_sources(run))


def extract_all(run: Run, directory: Path) -> None:
    """Extracts the members that this pair needs into `directory`, and reads each archive once."""
    members: dict[str, dict[str, Path]] = {}
    for row in wanted_sources(run):
        if row.member is not None:
            members.setdefault(row.archive, {})[row.member] = _extracted(directory, row)
    assert run.recipe.corpus.sources is not None
    for name, wanted in members.items():
        extract(archive_path(run, name), wanted, run.recipe.corpus.sources)


def _extracted(directory: Path, row: Source) -> Path:
    # A split may have several members; '/' is replaced because the member's path is not trusted.
    return directory / row.archive / (row.member or "").replace("/", "%")


def documents(run: Run, split: str) -> Path | None:
    """The file that names the document of each line of a split, if prepare.context needs it."""
    return download_dir(run) / f"{split}.{DOCUMENTS}" if run.recipe.prepare.context else None


def raw_files(run: Run, extracted: Path, split: str) -> list[tuple[Raw, Raw]]:
    """The files of the two sides of each part of a split, in order."""
    one, other = (_side(run, extracted, split, side) for side in (run.source, run.target))
    return list(zip(one, other, strict=True))  # wanted_sources has checked that both sides have as many files


def _side(run: Run, extracted: Path, split: str, language: str) -> list[Raw]:
    corpus = run.recipe.corpus
    if corpus.sources is None:
        path = download_dir(run) / f"{split}.{language}"
        name = str(path)
        with suppress(RecipeError):  # the text may have been deleted after it was copied
            if corpus.text is not None:
                files, column = find_splits(corpus.text, run.pair)[split], run.pair.split("-").index(language)
                name = str(files[column]) if len(files) == 2 else f"{files[0]}, column {column + 1}"
        return [Raw(path, name, documents=documents(run, split))]
    found = []
    for row in wanted_sources(run):
        if (row.split, row.language) == (split, language):
            archive = archive_path(run, row.archive)
            if row.member is None:
                found.append(Raw(archive, str(archive), row.lines))
            else:
                found.append(Raw(_extracted(extracted, row), f"{archive}, member {row.member}", row.lines))
    return found


def extract(archive: Path, members: Mapping[str, Path], table: Path) -> None:
    """Extracts members of an archive in one pass, each to its path: no archive can write elsewhere.

    Args:
        members: the path for each member, by the member's name.
        table: the file that names the members, for errors.

    Raises:
        RecipeError: a member is missing or damaged; names archive and member.
    """
    missing = dict(members)
    try:
        for name, file in _open_members(archive, missing):
            with atomic_path(missing[name]) as temporary, open(temporary, "wb") as out:
                if name.endswith(".sgm"):
                    out.writelines(_segments(file, f"{archive}, member {name}"))
                else:
                    shutil.copyfileobj(file, out, 1 << 20)
            del missing[name]
            if not missing:
                return
    except DAMAGE as error:
        # Names the first missing member, because a damaged stream hides all that follow.
        raise RecipeError(
            f"{archive} is damaged ({str(error) or type(error).__name__}), and member '{next(iter(missing))}' cannot "
            "be extracted: delete the archive and run the stage download again."
        ) from None
    raise RecipeError(f"{archive} has no member '{next(iter(missing))}': check {table}.")


def _open_members(archive: Path, wanted: Mapping[str, Path]) -> Iterator[tuple[str, BinaryIO]]:
    """Yields the wanted members in the archive's order; the caller reads each before it takes the next."""
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
        if line.startswith(b"<seg "):
            found = SEGMENT.match(line)
            if found is None:
                raise RecipeError(f"{where}, line {number}: this <seg> does not end on its line; fix it.")
            yield found[1] + b"\n"
