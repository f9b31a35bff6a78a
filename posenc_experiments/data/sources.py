"""Reads the tables of a corpus.

sources.tsv: the archive and member of each side of each split. archives.tsv: URL, size and checksum of each archive.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.run import Run
from posenc_experiments.data.tsv import read_rows

UNKNOWN = "-"
CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}")


class Source(NamedTuple):
    """One row of sources.tsv: one side of one split."""

    split: str
    pairs: str
    language: str
    archive: str
    member: str | None  # None: the archive is the text itself
    lines: int | None

    def is_of(self, pair: str) -> bool:
        return self.language in pair.split("-") and (self.pairs == "*" or pair in self.pairs.split(","))


class Archive(NamedTuple):
    """One row of archives.tsv: one URL of an archive."""

    archive: str
    url: str
    bytes: int | None
    checksum: str

    @property
    def file(self) -> str:
        return unquote(Path(urlsplit(self.url).path).name)

    @property
    def path(self) -> Path:
        """The file's path in the directory of downloads, under the archive's name, as files may have equal names."""
        return Path(self.file) if self.file == self.archive else Path(self.archive, self.file)


def read_sources(path: Path) -> list[Source]:
    """Reads a table of sources; RecipeError names the line at fault."""
    return [
        Source(split, pairs, language, archive, None if member == UNKNOWN else member, _number(where, "lines", lines))
        for where, (split, pairs, language, archive, member, lines) in read_rows(path, Source._fields)
    ]


def read_archives(path: Path) -> dict[str, list[Archive]]:
    """The alternatives of each archive, in the table's order; RecipeError names the line at fault."""
    archives: dict[str, list[Archive]] = {}
    for where, (name, url, size, checksum) in read_rows(path, Archive._fields):
        if not CHECKSUM.fullmatch(checksum):
            raise RecipeError(f"{where}: '{checksum}' is not sha256: or md5: followed by the hexadecimal checksum.")
        archives.setdefault(name, []).append(Archive(name, url, _number(where, "bytes", size), checksum))
    return archives


def _number(where: str, column: str, text: str) -> int | None:
    if text != UNKNOWN and not text.isdecimal():
        raise RecipeError(f"{where}: '{text}' in column {column} is not a number or {UNKNOWN} (unknown).")
    return None if text == UNKNOWN else int(text)


def pair_tests(run: Run) -> list[str]:
    """The recipe's test sets of this pair, in the recipe's order; RecipeError if there are none.

    A set that the table of sources has only for other pairs is left out. A set that it has for no pair is a mistake in
    the recipe, so it is returned, and `wanted_sources` refuses it.
    """
    corpus = run.recipe.corpus
    if corpus.sources is None:
        return corpus.tests
    rows = read_sources(corpus.sources)

    def has(pair: str, test: str) -> bool:
        return {row.language for row in rows if row.split == test and row.is_of(pair)} == {*pair.split("-")}

    known = {test for test in corpus.tests if any(has(pair, test) for pair in corpus.pairs)}
    tests = [test for test in corpus.tests if test not in known or has(run.pair, test)]
    if not tests:
        raise RecipeError(
            f"{corpus.sources} has none of the test sets {', '.join(corpus.tests)} for {run.pair}: choose another "
            "pair, or others in corpus.tests."
        )
    return tests


def all_splits(run: Run) -> list[str]:
    """The splits that a pair trains on, the validation set, and the test sets."""
    corpus = run.recipe.corpus
    return [*corpus.train_splits(run.pair), corpus.valid, *pair_tests(run)]


def split_sources(run: Run, split: str, side: str) -> list[Source]:
    """The rows of one side of a split."""
    return [row for row in wanted_sources(run) if (row.split, row.language) == (split, side)]


def wanted_sources(run: Run) -> list[Source]:
    """The rows of sources.tsv that this pair needs, split by split; none if the corpus has no such table."""
    corpus = run.recipe.corpus
    if corpus.sources is None:
        return []
    rows = [row for row in read_sources(corpus.sources) if row.is_of(run.pair)]
    splits = dict.fromkeys(all_splits(run))
    for split in splits:
        ours, theirs = (sum((row.split, row.language) == (split, side) for row in rows) for side in run.pair.split("-"))
        if not ours or ours != theirs:
            raise RecipeError(
                f"{corpus.sources}: split '{split}' has {ours} files in {run.source} and {theirs} in {run.target} for "
                f"{run.pair}; add or remove rows, or correct the name in `corpus`."
            )
    return [row for split in splits for row in rows if row.split == split]


def wanted_archives(run: Run) -> dict[str, list[Archive]]:
    """The rows of archives.tsv that this pair needs: each archive with its alternatives."""
    table = run.recipe.corpus.archives
    assert table is not None
    archives, rows = read_archives(table), wanted_sources(run)
    for row in rows:
        if row.archive not in archives:
            raise RecipeError(
                f"{table} has no archive '{row.archive}', which {run.recipe.corpus.sources} names: add a row."
            )
    return {name: archives[name] for name in dict.fromkeys(row.archive for row in rows)}
