"""Stage `download`: fetches and verifies a corpus's archives, runs its generator, or copies the user's own text."""

import shlex
import shutil
import sys
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

from rich.console import Console
from rich.progress import wrap_file

from posenc_experiments.base.done import is_done, locked, set_done
from posenc_experiments.base.errors import FILE_ERRORS, RecipeError
from posenc_experiments.base.files import TEMPORARY, atomic_directory, file_hash
from posenc_experiments.base.run import Run
from posenc_experiments.base.subprocesses import run_command
from posenc_experiments.data import own_text
from posenc_experiments.data.context import DOCUMENTS
from posenc_experiments.data.prepared import download_dir
from posenc_experiments.data.sources import Archive, all_splits, wanted_archives

ATTEMPTS = 4  # in a row without progress
NAMES = {"sha256": "SHA-256", "md5": "MD5"}
TOO_MANY_REQUESTS, OUT_OF_RANGE = 429, 416


def archive_path(run: Run, name: str) -> Path:
    """The downloaded file of an archive, from any of its alternatives."""
    rows, folder = wanted_archives(run)[name], download_dir(run)
    for row in rows:
        if is_done(folder, str(row.path), row.checksum):
            return folder / row.path
    raise RecipeError(f"{folder / rows[0].path} is missing, or not verified yet: run the stage download.")


def download(run: Run) -> None:
    """Runs the stage."""
    if run.recipe.corpus.sources is not None:
        _fetch_archives(run)
    else:
        _make_text(run)


def _make_text(run: Run) -> None:
    """Runs the generator, or copies the user's own text, unless that was done before."""
    corpus, directory = run.recipe.corpus, download_dir(run)
    origin = corpus.generator or corpus.text
    assert origin is not None
    if run.dry_run:
        if corpus.generator:
            run.dry(_generator_command(run, origin, directory))
        else:
            run.say(f"# copy the text of {origin} to {directory}")
        return
    sides = (run.source, run.target, *[DOCUMENTS] * run.recipe.prepare.context)
    names = [f"{split}.{side}" for split in all_splits(run) for side in sides]
    with locked(directory.parent):
        if is_done(directory, "download") and all((directory / name).is_file() for name in names):
            run.say("download: done before")
            return
        for left in directory.parent.glob(f"{directory.name}.*{TEMPORARY}"):  # by a killed call
            shutil.rmtree(left)
        with atomic_directory(directory) as temporary:
            if corpus.generator:
                log = directory.with_name("generate.log")
                log.unlink(missing_ok=True)
                run.say(f"download: {origin.name} makes the text, log {log}")
                command = _generator_command(run, origin, temporary)
                # With PYTHONSAFEPATH set, the generator could not import modules from its own directory.
                run_command(run, command, log, f"The generator {origin}", {"PYTHONSAFEPATH": ""})
                for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
                    run.say(f"download: {line}")
            else:
                own_text.copy(run, temporary)
            for name in names:
                if not (temporary / name).is_file():
                    raise RecipeError(
                        f"{origin} made no {name}: check --source, and the splits in {run.recipe.path}, `corpus`."
                    )
            set_done(temporary, "download")
        run.say(f"download: {origin} to {directory}")


def _generator_command(run: Run, generator: Path, directory: Path) -> list[str | Path]:
    source = () if run.source_dir is None else ("--source", run.source_dir)
    return [sys.executable, generator, *shlex.split(run.recipe.corpus.generator_options), *source, directory]


def _fetch_archives(run: Run) -> None:
    archives, folder = wanted_archives(run), download_dir(run)
    if run.dry_run:
        for first, *mirrors in archives.values():
            if run.source_dir is not None:
                run.say(f"# copy {run.source_dir / first.file} to {folder / first.path}")
                continue
            run.say(f"# download {first.url} to {folder / first.path}")
            for row in mirrors:
                run.say(f"# or, if that fails, {row.url} to {folder / row.path}")
        return

    def missing() -> list[list[Archive]]:
        lists = archives.values()
        return [rows for rows in lists if not any(is_done(folder, str(row.path), row.checksum) for row in rows)]

    if not missing():  # checked before locking, so that runs that only read do not exclude each other
        run.say("download: done before")
        return
    with locked(folder.parent):
        for rows in missing():
            row = _find(run, rows) or _fetch(run, rows)
            for other in rows:
                part_path(folder / other.path).unlink(missing_ok=True)
            set_done(folder, str(row.path), row.checksum, [folder / row.path])
        run.say(f"download: {len(archives)} files, sizes and checksums verified, in {folder}")


def _find(run: Run, rows: list[Archive]) -> Archive | None:
    """The alternative of an archive that is in its place without a record, or that --source has, which is copied.

    --source may have it as ARCHIVE/FILE too, because two archives may have files of one name.

    Raises:
        RecipeError: there is a --source, and it does not have the archive.
    """
    source, faults = run.source_dir, list[str]()
    for row in rows:
        final = download_dir(run) / row.path
        places = [final, *([source / row.path, source / row.file] if source else [])]
        for path in filter(Path.is_file, places):
            if fault := mismatch(path, row):
                faults.append(f"{path} {fault}")
                run.say(f"download: {faults[-1]}")
                continue
            if path != final:
                part = part_path(final)
                part.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, part)
                part.replace(final)
            return row
    if source is None:
        return None
    problem = "; ".join(faults) or f"there is no file {rows[0].file}"
    raise RecipeError(f"--source {source}: {problem}; add it, or leave --source out to download it.")


def _fetch(run: Run, rows: list[Archive]) -> Archive:
    """Downloads an archive from the first alternative that works; RecipeError, with all reasons, if none does."""
    reasons = []
    for row in rows:
        run.say(f"download: {row.url}")
        final = download_dir(run) / row.path
        part = part_path(final)
        part.parent.mkdir(parents=True, exist_ok=True)
        fault = _fetch_all(row, part, run.session.console)
        if not fault and (fault := mismatch(part, row)):
            part.unlink()  # a wrong file must not be resumed
        if not fault:
            part.replace(final)
            return row
        reasons.append(f"{row.url} {fault}")
        run.say(f"download: {reasons[-1]}")
    raise RecipeError(
        f"{'; '.join(reasons)}: check the network and run again (it resumes), or get {rows[0].file} elsewhere and "
        "give its directory with --source."
    )


def mismatch(path: Path, row: Archive) -> str:
    """How a file differs from the table's size or checksum, as a clause that follows its name; empty if it does not."""
    if row.bytes is not None and (size := size_of(path)) != row.bytes:
        return f"has {size:,} bytes instead of {row.bytes:,}: it is not the file this recipe was made for"
    method, wanted = row.checksum.split(":")
    if (own := file_hash(path, method)) == wanted:
        return ""
    return f"has {NAMES[method]} {own} instead of {wanted}: it is damaged or another version"


def part_path(final: Path) -> Path:
    """The path of an unfinished download."""
    return final.with_name(f"{final.name}.part")


def size_of(path: Path) -> int:
    """The bytes of a file; none if it does not exist."""
    return path.stat().st_size if path.exists() else 0


def _fetch_all(row: Archive, part: Path, terminal: Console) -> str:
    """Appends to `part` until it is complete; returns what failed, as a clause that follows the URL, or nothing.

    A connection that breaks is made again as long as there is progress.
    """
    failures, fault = 0, ""
    while failures < ATTEMPTS:
        had = size_of(part)
        time.sleep(failures)
        try:
            _fetch_rest(row, part, terminal)
            return ""
        except (OSError, HTTPException) as error:
            code = error.code if isinstance(error, urllib.error.HTTPError) else None
            if code == OUT_OF_RANGE:  # no bytes follow
                return ""
            if getattr(error, "errno", None) in FILE_ERRORS:  # an error of the local disk
                raise
            fault = f"cannot be reached ({error})"
            if code is not None and code < 500 and code != TOO_MANY_REQUESTS:
                break
        failures = 0 if size_of(part) > had else failures + 1
    return fault


def _fetch_rest(row: Archive, part: Path, terminal: Console) -> None:
    have = size_of(part)
    headers = {"User-Agent": "fairseq-posenc", **({"Range": f"bytes={have}-"} if have else {})}
    with urllib.request.urlopen(urllib.request.Request(row.url, headers=headers), timeout=60) as answer:
        # A server that ignores the range answers 200 and sends the whole file.
        start = have if answer.status == 206 else 0
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length else row.bytes
        if row.bytes is not None and total != row.bytes:  # such as an error page, which must not replace the part
            raise HTTPException(f"the server has {total:,} bytes instead of {row.bytes:,}: it is another file")
        rest = max(0, (total or 0) - start)
        bar = wrap_file(answer, rest, console=terminal, transient=True, disable=not terminal.is_terminal)
        with bar as body, open(part, "ab" if start else "wb") as file:
            shutil.copyfileobj(body, file, 1 << 20)
    if total is not None and size_of(part) < total:
        raise ConnectionError(f"the connection ended after {size_of(part):,} of {total:,} bytes")
