"""TEST.documents: the name of the document of each line of a test set, by which `compare` lets the test set vary.

The file comes with the recipe, its generator or the user's own text; WMT's test sets in SGM have the names themselves.
Training, translations and scores do not depend on it, and so it is in no fingerprint.
"""

import codecs
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import atomic_path
from posenc_experiments.base.run import Run
from posenc_experiments.data import text
from posenc_experiments.data.context import DOCUMENTS
from posenc_experiments.data.download import archive_path
from posenc_experiments.data.prepared import download_dir, prepared_dir
from posenc_experiments.data.raw import SGM, is_segment, open_members
from posenc_experiments.data.sources import pair_tests, wanted_sources

TAG = re.compile(rb"\s*</?doc\b", re.IGNORECASE)
NAME = re.compile(rb"\sdocid\s*=\s*([\"'])(.*?)\1", re.IGNORECASE)


def find_documents(directory: Path, test: str) -> Path | None:
    """The file of a test set's documents in a directory, plain or as .gz; None if there is none."""
    files = (directory / f"{test}.{DOCUMENTS}{suffix}" for suffix in ("", ".gz"))
    return next(filter(Path.is_file, files), None)


def read_documents(path: Path, test: str, sentences: int) -> list[bytes]:
    """The document of each sentence of a test set; RecipeError unless the file has a line for each sentence."""
    names = [line.removeprefix(codecs.BOM_UTF8).strip() for line in text.read_lines(path)]
    if len(names) != sentences:
        raise RecipeError(
            f"{path} has {len(names):,} lines, and {test} has {sentences:,} sentences: write one line for each "
            "sentence, with the name of its document."
        )
    return names


def add_documents(run: Run) -> None:
    """Writes the documents of the test sets beside the prepared text, which may be of a version that wrote none."""
    corpus = run.recipe.corpus
    places = [corpus.text] if corpus.text is not None else [download_dir(run), run.recipe.path.parent]
    for test in pair_tests(run):
        path = prepared_dir(run) / f"{test}.{DOCUMENTS}"
        before = path.read_bytes() if path.is_file() else None
        given = next(filter(None, (find_documents(place, test) for place in places)), None)
        if given is not None:
            with text.open_raw(given) as file:
                names: bytes | None = file.read()
        else:
            names = before or _archived_documents(run, test)
        if names is not None and names != before and os.access(path.parent, os.W_OK):
            with atomic_path(path) as temporary:
                temporary.write_bytes(names)


def _archived_documents(run: Run, test: str) -> bytes | None:
    """The documents that the SGM of a test set's source names, or else that of its target; None if there are none."""
    for row in sorted(wanted_sources(run), key=lambda row: row.language != run.source):
        if row.split == test and row.member is not None and row.member.endswith(SGM):
            with suppress(RecipeError):  # the archive may have been deleted after the preparation
                for _, file in open_members(archive_path(run, row.archive), [row.member]):
                    if names := documents_of_segments(file):
                        return b"".join(name + b"\n" for name in names)
    return None


def documents_of_segments(lines: Iterable[bytes]) -> list[bytes]:
    """The document of each segment of a test set in SGM; empty if there is a segment outside of documents."""
    names, document = list[bytes](), b""
    for line in lines:
        if is_segment(line):
            names.append(document)
        elif TAG.match(line):
            name = NAME.search(line)
            document = b"" if name is None else name[2].strip()
    return names if all(names) else []
