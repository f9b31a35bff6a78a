"""The tables that say what a corpus is made of: sources.tsv (which member of which archive is which side of which
split), archives.tsv (where an archive is and what it must be) and counts.tsv (how many pairs others found).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.run import Run
from posenc_experiments.data.tsv import read_rows

STEPS = ("read", "utf8", "nonempty", "different", "length", "kept")  # of cleaning, after which pairs are counted
SOURCE_COLUMNS = ("split", "pairs", "language", "archive", "member", "lines")
ARCHIVE_COLUMNS = ("archive", "url", "bytes", "checksum")
COUNT_COLUMNS = ("pair", "train", "step", "pairs", "evidence")
UNKNOWN = "-"
CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}")


@dataclass(frozen=True)
class Source:
    """One row of sources.tsv: one side of one split."""

    split: str
    pairs: str
    language: str
    archive: str
    member: str | None  # None: the archive is the text itself
    lines: int | None

    def is_of(self, pair: str) -> bool:
        return self.language in pair.split("-") and (self.pairs == "*" or pair in self.pairs.split(","))


@dataclass(frozen=True)
class Archive:
    """One row of archives.tsv: one place where an archive can be had."""

    archive: str
    url: str
    bytes: int | None
    checksum: str

    @property
    def file(self) -> str:
        return unquote(Path(urlsplit(self.url).path).name)

    @property
    def path(self) -> Path:
        """Where it is kept, under the directory of downloads: other archives may have a file of that name."""
        return Path(self.file) if self.file == self.archive else Path(self.archive, self.file)


@dataclass(frozen=True)
class Known:
    """One row of counts.tsv: how many pairs others had after a step."""

    pair: str
    train: str
    step: str
    pairs: int
    evidence: str


def _number(where: str, column: str, text: str) -> int | None:
    if text != UNKNOWN and not text.isdecimal():
        raise RecipeError(f"{where}: '{text}' in column {column} is not a number, nor {UNKNOWN} for unknown.")
    return None if text == UNKNOWN else int(text)


def read_sources(path: Path) -> list[Source]:
    """Reads a table of sources; RecipeError names the line at fault."""
    sources = []
    for where, (split, pairs, language, archive, member, lines) in read_rows(path, SOURCE_COLUMNS):
        for text in (split, language):
            if not re.fullmatch(r"[\w][\w.-]*", text):  # they become names of files
                raise RecipeError(f"{where}: '{text}' may hold letters, digits, '_', '-' and '.' only.")
        known = _number(where, "lines", lines)
        sources.append(Source(split, pairs, language, archive, None if member == UNKNOWN else member, known))
    return sources


def read_archives(path: Path) -> dict[str, list[Archive]]:
    """The alternatives of each archive, in the table's order; RecipeError names the line at fault."""
    archives: dict[str, list[Archive]] = {}
    for where, (name, url, size, checksum) in read_rows(path, ARCHIVE_COLUMNS):
        if not CHECKSUM.fullmatch(checksum):
            raise RecipeError(f"{where}: '{checksum}' is not sha256: or md5: and the sum in hexadecimal.")
        row = Archive(name, url, _number(where, "bytes", size), checksum)
        if not re.fullmatch(r"[\w][\w.-]*", row.file) or not re.fullmatch(r"[\w][\w.-]*", name):
            raise RecipeError(f"{where}: the archive's name and the URL's last part become a file's name.")
        archives.setdefault(name, []).append(row)
    return archives


def read_counts(path: Path) -> list[Known]:
    """Reads a table of known counts; RecipeError names the line at fault."""
    known = []
    for where, (pair, train, step, pairs, evidence) in read_rows(path, COUNT_COLUMNS):
        count = _number(where, "pairs", pairs)
        if step not in STEPS:
            raise RecipeError(f"{where}: '{step}' is not a step; the steps are {', '.join(STEPS)}.")
        if count is not None:
            known.append(Known(pair, train, step, count, evidence))
    return known


def pair_tests(run: Run) -> list[str]:
    """The recipe's test sets that this pair has, in the recipe's order; RecipeError if it has none.

    Left out is a set that the table of sources has for another pair of the recipe and not for this one. One that it has
    for no pair is a mistake: it stays in, for `wanted_sources` to refuse.
    """
    corpus = run.recipe.corpus
    if corpus.sources is None:
        return corpus.tests
    rows = read_sources(corpus.sources)

    def has(pair: str, test: str) -> bool:
        languages = {row.language for row in rows if row.split == test and row.is_of(pair)}
        return languages == set(pair.split("-"))

    known = {test for test in corpus.tests if any(has(pair, test) for pair in corpus.pairs)}
    tests = [test for test in corpus.tests if test not in known or has(run.pair, test)]
    if not tests:
        raise RecipeError(
            f"{corpus.sources} has none of the test sets {', '.join(corpus.tests)} for {run.pair}: choose another "
            "pair, or others in [corpus] tests."
        )
    return tests


def wanted_sources(run: Run) -> list[Source]:
    """The rows that this pair needs."""
    corpus = run.recipe.corpus
    assert corpus.sources is not None
    rows = [row for row in read_sources(corpus.sources) if row.is_of(run.pair)]
    splits = dict.fromkeys([*corpus.train_splits(run.pair), corpus.valid, *pair_tests(run)])
    for split in splits:
        counts = [sum((row.split, row.language) == (split, side) for row in rows) for side in (run.source, run.target)]
        for language, count in zip((run.source, run.target), counts, strict=True):
            if not count:
                raise RecipeError(
                    f"{corpus.sources} has no file for split '{split}', language '{language}', pair {run.pair}: "
                    "add a row, or correct the name in [corpus]."
                )
        if counts[0] != counts[1]:
            raise RecipeError(
                f"{corpus.sources}: '{split}' has {counts[0]} files in {run.source}, {counts[1]} in {run.target}."
            )
    return [row for split in splits for row in rows if row.split == split]


def wanted_archives(run: Run) -> dict[str, list[Archive]]:
    """The archives that this pair needs, each with its alternatives."""
    table = run.recipe.corpus.archives
    assert table is not None
    archives = read_archives(table)
    for row in wanted_sources(run):
        if row.archive not in archives:
            raise RecipeError(
                f"{table} has no archive '{row.archive}', which {run.recipe.corpus.sources} names: add a row."
            )
    return {name: archives[name] for name in dict.fromkeys(row.archive for row in wanted_sources(run))}


def known_counts(run: Run) -> list[Known]:
    """What others counted of this pair's training data, as it is put together here."""
    table = run.recipe.corpus.counts
    train = sorted(run.recipe.corpus.train_splits(run.pair))
    pairs = (run.pair, f"{run.target}-{run.source}")
    rows = read_counts(table) if table is not None else []
    return [row for row in rows if row.pair in pairs and sorted(row.train.split()) == train]
