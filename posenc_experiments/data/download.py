"""Stage `download`: fetches and verifies a corpus's archives, runs its generator, or copies the user's own text."""

import contextlib
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.progress import DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import (
    Markers,
    atomic_directory,
    atomic_path,
    file_hash,
    fingerprint,
    locked,
    write_json,
)
from posenc_experiments.base.run import Run, run_command
from posenc_experiments.data import own_text
from posenc_experiments.data.checksums import CHECKSUMS, checksums
from posenc_experiments.data.context import DOCUMENTS
from posenc_experiments.data.fetch import FetchError, fetch, forget_parts, free_bytes, is_whole, part_path, verify
from posenc_experiments.data.sources import Archive, pair_tests, wanted_archives, wanted_sources


def contents(run: Run, split: str) -> dict[str, list[str]] | None:
    """The identity of a split's text, by language.

    This is the checksum of each file; for a member of an archive, the archive's checksum and the member's name. None
    if the text is generated or the user's own, and the stage has not run yet.
    """
    sides = _sides(run)
    if run.recipe.corpus.sources is None:
        sums = checksums(run)
        if any(f"{split}.{side}" not in sums for side in sides):
            return None
        return {side: [f"sha256:{sums[f'{split}.{side}']}"] for side in sides}
    rows, archives = [row for row in wanted_sources(run) if row.split == split], wanted_archives(run)
    # Of an archive's rows, only the first counts, so that adding a mirror does not change the identity.
    return {
        side: [
            " ".join(filter(None, [archives[row.archive][0].checksum, row.member]))
            for row in rows
            if row.language == side
        ]
        for side in sides
    }


def _sides(run: Run) -> list[str]:
    """The endings of the files of a split."""
    return [run.source, run.target, *[DOCUMENTS] * run.recipe.prepare.context]


def _generation(run: Run) -> str:
    """The fingerprint of the generator's code and options."""
    corpus = run.recipe.corpus
    assert corpus.generator is not None
    # The generator may import modules from its own directory.
    folder = corpus.generator.parent
    code = {str(path.relative_to(folder)): file_hash(path) for path in sorted(folder.rglob("*.py"))}
    return fingerprint([code, corpus.generator_options])


def archive_path(run: Run, name: str) -> Path:
    """The downloaded file of an archive, from any of its alternatives."""
    rows = wanted_archives(run)[name]
    paths = [run.download_dir / row.path for row in rows]
    for path in paths:
        if path.is_file():
            return path
    raise RecipeError(f"{paths[0]} is missing: run the stage download.")


def download(run: Run) -> None:
    """Runs the stage."""
    if run.recipe.corpus.generator is not None:
        _generate(run)
    elif run.recipe.corpus.text is not None:
        own_text.take(run)
    else:
        _fetch_all(run)


def _generate(run: Run) -> None:
    corpus = run.recipe.corpus
    assert corpus.generator is not None
    command: list[str | Path] = [run.python, corpus.generator, *shlex.split(corpus.generator_options)]
    command += [] if run.source_dir is None else ["--source", run.source_dir]
    if run.dry_run:
        run.dry([*command, run.download_dir])
        return
    corpus_dir = run.download_dir.parent
    markers = Markers(corpus_dir)
    with locked(corpus_dir):
        splits = (*corpus.train_splits(run.pair), corpus.valid, *pair_tests(run))
        names = [f"{split}.{language}" for split in splits for language in _sides(run)]
        if markers.is_done("download", _generation(run)) and checksums(run).keys() >= set(names):
            run.say("download: done before")
            return
        markers.clear("download")
        log = corpus_dir / "generate.log"
        log.unlink(missing_ok=True)
        run.say(f"download: {corpus.generator.name} makes the text, log {log}")
        with atomic_directory(run.download_dir) as temporary:
            # With PYTHONSAFEPATH set, the generator could not import modules from its own directory.
            run_command(run, [*command, temporary], log, f"The generator {corpus.generator}", {"PYTHONSAFEPATH": ""})
            for name in names:
                if not (temporary / name).is_file():
                    raise RecipeError(
                        f"{corpus.generator} made no {name}: check the splits in {run.recipe.path}, `corpus`"
                        f"{', or give another --source' if corpus.takes_source else ''}."
                    )
            made = sorted(path for path in temporary.rglob("*") if path.is_file())
            sums = {str(path.relative_to(temporary)): file_hash(path) for path in made}
            write_json(temporary / CHECKSUMS, sums)
        markers.set_done("download", _generation(run), [run.download_dir / name for name in (*names, CHECKSUMS)])
        run.say(f"download: generated by {corpus.generator.name} into {run.download_dir}")


def _stage(name: str) -> str:
    return f"download-{name}"


def _inputs(rows: list[Archive]) -> str:
    return fingerprint([[row.file, row.checksum] for row in rows])


def _fetch_all(run: Run) -> None:
    archives = wanted_archives(run)
    if run.dry_run:
        for rows in archives.values():
            _dry(run, rows)
        return
    markers = Markers(run.download_dir.parent)

    def missing() -> dict[str, list[Archive]]:
        return {name: rows for name, rows in archives.items() if not markers.is_done(_stage(name), _inputs(rows))}

    if not missing():  # checked before locking, so that runs that only read do not exclude each other
        run.say("download: done before")
        return
    with locked(run.download_dir.parent):
        wanted = missing()
        _require_space(run, wanted)
        for name, rows in wanted.items():
            final = _find_whole(run, rows) or (_copy(run, rows) if run.source_dir is not None else _fetch(run, rows))
            for row in rows:
                forget_parts(row, run.download_dir / row.path)
            markers.set_done(_stage(name), _inputs(rows), [final])
        run.say(f"download: {len(archives)} files, sizes and checksums verified, in {run.download_dir}")


def _dry(run: Run, rows: list[Archive]) -> None:
    if run.source_dir is not None:
        run.say(f"# copy {run.source_dir / rows[0].file} to {run.download_dir / rows[0].path}")
        return
    for number, row in enumerate(rows):
        text = "or, if that fails," if number else "download"
        run.say(f"# {text} {row.url} to {run.download_dir / row.path}")


def _find_whole(run: Run, rows: list[Archive]) -> Path | None:
    """A complete file without a marker, such as one that the user put there; a different file is moved aside."""
    for row in rows:
        path = run.download_dir / row.path
        if path.is_file():
            if is_whole(path, row):
                return path
            aside = path.with_name(f"{path.name}.other")
            run.say(f"download: {path} is not the file of {run.recipe.corpus.archives}; renamed it to {aside.name}")
            path.replace(aside)
    return None


def _require_space(run: Run, archives: dict[str, list[Archive]]) -> None:
    """RecipeError, before the first download, if the disk has no space for all missing archives."""
    needed = 0
    for rows in archives.values():
        paths = [run.download_dir / row.path for row in rows]
        if not any(path.is_file() for path in paths):
            part = part_path(rows[0], paths[0])
            needed += (rows[0].bytes or 0) - (part.stat().st_size if part.exists() else 0)
    run.download_dir.mkdir(parents=True, exist_ok=True)
    free = free_bytes(run.download_dir)
    if needed > free:
        raise RecipeError(
            f"The disk of {run.download_dir} has {free:,} bytes free, and the missing archives need {needed:,}: free "
            "some space, or give another directory with --data-dir."
        )


def _copy(run: Run, rows: list[Archive]) -> Path:
    """Copies an archive, from any of its alternatives, out of --source.

    Each alternative is looked for as ARCHIVE/FILE too, because two archives may have files of one name.
    """
    assert run.source_dir is not None
    wrong = None
    for row in rows:
        for origin in dict.fromkeys((run.source_dir / row.path, run.source_dir / row.file)):
            if not origin.is_file():
                continue
            try:
                verify(origin, row)
            except FetchError as error:
                wrong = wrong or RecipeError(f"{origin} {error}.")
                continue
            final = run.download_dir / row.path
            with atomic_path(final) as temporary:
                shutil.copyfile(origin, temporary)
                verify(temporary, row)
            return final
    names = " or ".join(dict.fromkeys(row.file for row in rows))
    raise wrong or RecipeError(
        f"--source {run.source_dir}: there is no file {names}; add it, or leave --source out to download it."
    )


def _fetch(run: Run, rows: list[Archive]) -> Path:
    """Downloads an archive from the first alternative that works; RecipeError, with all reasons, if none does."""
    reasons = []
    for number, row in enumerate(rows, 1):
        size = f" ({row.bytes:,} bytes)" if row.bytes is not None else ""
        run.say(f"download: {row.url}{size}")
        final = run.download_dir / row.path
        try:
            with _progress(run) as progress:
                fetch(row, final, progress)
            return final
        except FetchError as error:
            reasons.append(f"{row.url} {error}")
            if number < len(rows):
                run.say(f"download: {reasons[-1]}; trying the next URL")
    files = " or ".join(dict.fromkeys(row.file for row in rows))
    raise RecipeError(
        f"{'; '.join(reasons)}: check the network and run again (it resumes), or get {files} elsewhere and give its "
        "directory with --source."
    )


@contextlib.contextmanager
def _progress(run: Run) -> Iterator[Callable[[int, int | None], None]]:
    """Shows the progress of a download on a terminal; yields the function that updates it."""
    columns = (TextColumn("  "), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=run.console, transient=True, disable=not run.console.is_terminal) as progress:
        task = progress.add_task("", total=None)
        yield lambda had, total: progress.update(task, completed=had, total=total)
