"""Stage `download`: brings the corpus's files to disk, whole and verified, or has the recipe's generator make
them.
"""

import csv
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from recipes.common.errors import RecipeError
from recipes.common.run import Run, run_command
from recipes.common.stages import (
    Markers,
    atomic_path,
    empty_directory,
    file_hash,
    fingerprint,
    locked,
    replace_directory,
)

COLUMNS = ("split", "language", "file", "url", "bytes", "sha256")
ATTEMPTS = 4


@dataclass(frozen=True)
class Source:
    """One row of sources.tsv: one side of one split."""

    split: str
    language: str
    file: str
    url: str
    bytes: int
    sha256: str


def read_sources(path: Path) -> list[Source]:
    """Reads a table of sources; RecipeError names the line at fault."""
    with open(path, encoding="utf-8", newline="") as file:
        lines = [(number, line.rstrip("\n")) for number, line in enumerate(file, 1)]
    rows = [(number, line) for number, line in lines if line.strip() and not line.startswith("#")]
    if not rows or tuple(rows[0][1].split("\t")) != COLUMNS:
        raise RecipeError(f"{path}: the first row must name the columns {', '.join(COLUMNS)}, separated by tabs.")
    sources = []
    for (number, _), row in zip(rows[1:], csv.reader([line for _, line in rows[1:]], delimiter="\t"), strict=True):
        if len(row) != len(COLUMNS) or not row[4].isdigit() or len(row[5]) != 64:
            raise RecipeError(f"{path}, line {number}: write {', '.join(COLUMNS)}, separated by tabs.")
        sources.append(Source(row[0], row[1], row[2], row[3], int(row[4]), row[5]))
    return sources


def wanted_sources(run: Run) -> list[Source]:
    """The rows that this pair needs."""
    table = run.recipe.corpus.sources
    assert table is not None
    sources = read_sources(table)
    corpus = run.recipe.corpus
    for split in (corpus.train, corpus.valid, *corpus.tests):
        for language in (run.source, run.target):
            if not any(row.split == split and row.language == language for row in sources):
                raise RecipeError(f"{table} has no file for split '{split}', language '{language}': add a row.")
    return [row for row in sources if row.language in (run.source, run.target)]


def raw_files(run: Run, split: str, language: str) -> list[Path]:
    """The files that hold one side of a split, in order; sides of one split match file by file."""
    if run.recipe.corpus.generator is not None:
        return [run.download_dir / f"{split}.{language}"]
    return [
        run.download_dir / row.file for row in wanted_sources(run) if (row.split, row.language) == (split, language)
    ]


def inputs(run: Run, splits: Sequence[str] | None = None) -> str:
    """The fingerprint of what decides this stage's outputs, or only those of some splits."""
    corpus = run.recipe.corpus
    if corpus.generator is not None:
        # The generator's own modules lie beside it.
        folder = corpus.generator.parent
        code = {str(path.relative_to(folder)): file_hash(path) for path in sorted(folder.rglob("*.py"))}
        return fingerprint([code, corpus.generator_options])
    return fingerprint(
        [
            [row.split, row.language, row.file, row.sha256]
            for row in wanted_sources(run)
            if splits is None or row.split in splits
        ]
    )


def download(run: Run) -> None:
    """Runs the stage."""
    if run.recipe.corpus.generator is not None:
        _generate(run)
    else:
        _fetch_all(run)


def _generate(run: Run) -> None:
    corpus = run.recipe.corpus
    assert corpus.generator is not None
    temporary = run.download_dir.with_name("download.tmp")
    command: list[str | Path] = [run.python, corpus.generator, *corpus.generator_options, temporary]
    if run.dry_run:
        run.dry(command)
        return
    corpus_dir = run.download_dir.parent
    markers = Markers(corpus_dir)
    with locked(corpus_dir):
        if markers.is_done("download", inputs(run)):
            run.say("download: done before")
            return
        markers.clear("download")
        empty_directory(temporary)
        log = corpus_dir / "generate.log"
        log.unlink(missing_ok=True)
        run_command(run, command, log, f"The generator {corpus.generator}")
        splits = (corpus.train, corpus.valid, *corpus.tests)
        names = [f"{split}.{language}" for split in splits for language in (run.source, run.target)]
        for name in names:
            if not (temporary / name).is_file():
                raise RecipeError(
                    f"{corpus.generator} made no {name}: check the splits in {run.recipe.path}, section [corpus]."
                )
        replace_directory(temporary, run.download_dir)
        markers.set_done("download", inputs(run), [run.download_dir / name for name in names])
        run.say(f"download: generated by {corpus.generator.name} into {run.download_dir}")


def _fetch_all(run: Run) -> None:
    rows = wanted_sources(run)
    if run.dry_run:
        for row in rows:
            here = run.download_dir / row.file
            origin = run.source_dir / row.file if run.source_dir else None
            run.dry(["cp", origin, here] if origin else ["curl", "--continue-at", "-", "--output", here, row.url])
        return
    stage = f"download-{run.pair}"
    corpus_dir = run.download_dir.parent
    markers = Markers(corpus_dir)
    with locked(corpus_dir):
        if markers.is_done(stage, inputs(run)):
            run.say("download: done before")
            return
        for row in rows:
            final = run.download_dir / row.file
            if final.is_file() and final.stat().st_size == row.bytes and file_hash(final) == row.sha256:
                continue
            if run.source_dir is not None:
                _copy(run.source_dir / row.file, final, row)
            else:
                run.say(f"download: {row.url} ({row.bytes:,} bytes)")
                _fetch(row, final)
        markers.set_done(stage, inputs(run), [run.download_dir / row.file for row in rows])
        run.say(f"download: {len(rows)} files, sizes and SHA-256 verified, in {run.download_dir}")


def _verify(path: Path, row: Source, origin: str) -> None:
    size = path.stat().st_size
    if size != row.bytes:
        raise RecipeError(
            f"{origin} has {size:,} bytes instead of {row.bytes:,}: it is not the file this recipe was made for."
        )
    found = file_hash(path)
    if found != row.sha256:
        raise RecipeError(f"{origin} has SHA-256 {found} instead of {row.sha256}: it is damaged or another version.")


def _copy(origin: Path, final: Path, row: Source) -> None:
    if not origin.is_file():
        raise RecipeError(
            f"--source {origin.parent}: there is no file {origin.name}; add it, or leave --source out to download it."
        )
    with atomic_path(final) as temporary:
        shutil.copyfile(origin, temporary)
        _verify(temporary, row, str(origin))


def _fetch(row: Source, final: Path) -> None:
    """Downloads into `<name>.part`, going on from what an earlier run left there; a wrong file never gets the
    final name.
    """
    part = final.with_name(final.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _fetch_rest(row, part)
            break
        except urllib.error.HTTPError as error:
            if error.code < 500 or attempt == ATTEMPTS:
                raise RecipeError(
                    f"{row.url} answered '{error.code} {error.reason}': get {row.file} elsewhere and "
                    f"give its directory with --source."
                ) from None
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            if attempt == ATTEMPTS:
                reason = getattr(error, "reason", error)
                raise RecipeError(
                    f"{row.url} cannot be reached ({reason}): check the network and run again (it resumes), "
                    "or give the files' directory with --source."
                ) from None
        time.sleep(attempt)
    try:
        _verify(part, row, row.url)
    except RecipeError:
        part.unlink()  # a wrong file must not be resumed
        raise
    part.replace(final)


def _fetch_rest(row: Source, part: Path) -> None:
    have = part.stat().st_size if part.exists() else 0
    if have > row.bytes:
        part.unlink()
        have = 0
    if have == row.bytes:
        return
    request = urllib.request.Request(row.url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        # A server that ignores the range answers 200 and sends all of it again.
        file = open(part, "ab" if answer.status == 206 else "wb")  # noqa: SIM115
        with file:
            shutil.copyfileobj(answer, file, 1 << 20)
    size = part.stat().st_size
    if size < row.bytes:
        raise ConnectionError(f"the connection ended after {size:,} of {row.bytes:,} bytes")
