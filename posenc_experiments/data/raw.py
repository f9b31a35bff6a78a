"""The corpus's text as files, once its archives are there: where each side of each split lies."""

from dataclasses import dataclass
from pathlib import Path

from posenc_experiments.base.run import Run
from posenc_experiments.data import archives, download, own_text
from posenc_experiments.data.sources import Source, wanted_sources


@dataclass(frozen=True)
class Raw:
    """One side of one part of a split; `name` is what people know it by."""

    path: Path
    name: str
    known_lines: int | None = None


def has_members(run: Run) -> bool:
    """Whether anything must be taken out of archives."""
    return run.recipe.corpus.sources is not None and any(row.member is not None for row in wanted_sources(run))


def extract(run: Run, directory: Path) -> None:
    """Takes what this pair needs out of its archives, each read once."""
    members: dict[str, dict[str, Path]] = {}
    for row in wanted_sources(run):
        if row.member is not None:
            members.setdefault(row.archive, {})[row.member] = _extracted(directory, row)
    assert run.recipe.corpus.sources is not None
    for name, wanted in members.items():
        archives.extract(download.archive_path(run, name), wanted, run.recipe.corpus.sources)


def _extracted(directory: Path, row: Source) -> Path:
    # By archive and member, for a split may have several files; the member's own path is not trusted to be a name.
    member = (row.member or "").replace("/", "%")
    return directory / row.archive / member


def raw_files(run: Run, extracted: Path, split: str, language: str) -> list[Raw]:
    """The files that hold one side of a split, in order; sides of one split match file by file."""
    if run.recipe.corpus.sources is None:
        path = run.download_dir / f"{split}.{language}"
        return [Raw(path, own_text.origin(run, path.name) or str(path))]
    found = []
    for row in wanted_sources(run):
        if (row.split, row.language) == (split, language):
            archive = download.archive_path(run, row.archive)
            if row.member is None:
                found.append(Raw(archive, str(archive), row.lines))
            else:
                found.append(Raw(_extracted(extracted, row), f"{archive}, member {row.member}", row.lines))
    return found
