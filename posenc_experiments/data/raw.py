"""The files of each side of each split of a downloaded corpus."""

from dataclasses import dataclass
from pathlib import Path

from posenc_experiments.base.run import Run
from posenc_experiments.data import archives, download, own_text
from posenc_experiments.data.context import DOCUMENTS
from posenc_experiments.data.prepared import download_dir
from posenc_experiments.data.sources import Source, wanted_sources


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


def extract(run: Run, directory: Path) -> None:
    """Extracts the members that this pair needs into `directory`, and reads each archive once."""
    members: dict[str, dict[str, Path]] = {}
    for row in wanted_sources(run):
        if row.member is not None:
            members.setdefault(row.archive, {})[row.member] = _extracted(directory, row)
    assert run.recipe.corpus.sources is not None
    for name, wanted in members.items():
        archives.extract(download.archive_path(run, name), wanted, run.recipe.corpus.sources)


def _extracted(directory: Path, row: Source) -> Path:
    # A split may have several members; '/' is replaced because the member's path is not trusted.
    member = (row.member or "").replace("/", "%")
    return directory / row.archive / member


def documents(run: Run, split: str) -> Path | None:
    """The file that names the document of each line of a split, if prepare.context needs it."""
    return download_dir(run) / f"{split}.{DOCUMENTS}" if run.recipe.prepare.context else None


def raw_files(run: Run, extracted: Path, split: str, language: str) -> list[Raw]:
    """The files of one side of a split, in order; those of the two sides match one by one."""
    if run.recipe.corpus.sources is None:
        path = download_dir(run) / f"{split}.{language}"
        return [Raw(path, own_text.origin(run, split, language) or str(path), documents=documents(run, split))]
    found = []
    for row in wanted_sources(run):
        if (row.split, row.language) == (split, language):
            archive = download.archive_path(run, row.archive)
            if row.member is None:
                found.append(Raw(archive, str(archive), row.lines))
            else:
                found.append(Raw(_extracted(extracted, row), f"{archive}, member {row.member}", row.lines))
    return found
