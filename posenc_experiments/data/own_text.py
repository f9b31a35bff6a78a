"""Finds, checks and copies the user's own text: a directory of train.en and train.de, or of train.tsv.

Validation and test sets have the same form; any file may be compressed as .gz. The lines are copied unchanged to the
directory of the corpus, so that runs do not depend on files that are edited later. The copy does not depend on the
form of the files, and so neither do the experiments.
"""

import codecs
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from textwrap import shorten

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import fingerprint
from posenc_experiments.base.run import Run
from posenc_experiments.data.text import open_raw

TRAIN, VALID, TSV = "train", "valid", "tsv"
NOWHERE = Path(os.devnull)
BATCH = 5_000  # pairs written at a time
Splits = dict[str, list[Path]]  # for each set, the files of the two sides, or one .tsv of both


def find_splits(directory: Path, pair: str) -> Splits:
    """The files of the training, validation and test sets, tests in the order of their names.

    Raises:
        RecipeError: the directory cannot be read, a file is missing, or a set is given in two forms.
    """
    if not directory.is_dir():
        raise RecipeError(f"--text {directory}: there is no such directory.")
    sides, names = pair.split("-"), sorted(os.listdir(directory))
    found: dict[str, dict[str, Path]] = {TRAIN: {}, VALID: {}}
    for name in names:
        split, _, kind = name.removesuffix(".gz").rpartition(".")
        if split not in (TRAIN, VALID) and not split.startswith("test"):
            continue
        kinds = found.setdefault(split, {})
        for other in kinds:
            if {other, kind} <= {*sides, TSV} and (other == kind or TSV in (other, kind)):
                raise RecipeError(f"{directory} has {kinds[other].name} and {name}: remove one of the two.")
        kinds[kind] = directory / name
    splits, missing = Splits(), list[str]()
    for split, kinds in found.items():
        lacking = [] if TSV in kinds else [f"{split}.{side}" for side in sides if side not in kinds]
        if not lacking:
            splits[split] = [kinds[TSV]] if TSV in kinds else [kinds[side] for side in sides]
        # A test set that also has other languages may belong to another pair, so it is left out.
        elif split in (TRAIN, VALID) or kinds.keys() <= set(sides):
            missing += lacking
    tests = [split for split in splits if split not in (TRAIN, VALID)]
    if not tests and not any(name.startswith("test") for name in missing):
        missing += [f"test.{side}" for side in sides if side not in found.get("test", {})]
    if missing:
        raise RecipeError(
            f"{directory} has no {', '.join(missing)} for --pair {pair}: add them, plain or as .gz, or each pair of "
            f"them as one .tsv (source, tab, target); it has {shorten(', '.join(names), 160) or 'no files'}."
        )
    for test in tests:
        if not re.fullmatch(r"[\w.-]+", test):
            raise RecipeError(
                f"{splits[test][0]}: rename it; a test set's name is of letters, digits, '.', '_' and '-'."
            )
    return splits


def read_pairs(files: Sequence[Path]) -> Iterator[tuple[bytes, ...]]:
    """The pairs of lines of a set; RecipeError, naming file and line, if a line cannot be used."""
    counts = [0, 0]
    if len(files) == 1:
        for counts[0], line in enumerate(_lines(files[0]), 1):
            cells = tuple(line.split(b"\t"))
            if len(cells) != 2:
                raise RecipeError(
                    f"{files[0]}, line {counts[0]}: it has {len(cells)} columns; write source, one tab, target."
                )
            yield cells
    else:
        for pair in zip_longest(*map(_lines, files)):
            counts = [count + (line is not None) for count, line in zip(counts, pair, strict=True)]
            if counts[0] == counts[1]:
                yield pair
        if counts[0] != counts[1]:
            raise RecipeError(
                f"{files[0]} has {counts[0]:,} lines and {files[1]} has {counts[1]:,}: they are not translations of "
                "each other line by line; correct or replace them."
            )
    if not counts[0]:
        raise RecipeError(f"{files[0]} is empty: write its text to it.")


def _lines(path: Path) -> Iterator[bytes]:
    if not path.is_file():
        raise RecipeError(f"{path} is not a file, or is a link to nothing: replace it.")
    with open_raw(path, "compress its text again") as file:
        for number, line in enumerate(file, 1):
            if b"\0" in line:
                raise RecipeError(
                    f"{path}, line {number}: it has a NUL byte, which no text has; save the file as UTF-8, or name it "
                    ".gz if it is compressed."
                )
            # Windows editors write a byte order mark before the first line.
            yield (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).removesuffix(b"\n")


def read_set(files: Sequence[Path], paths: Sequence[Path] = (NOWHERE, NOWHERE)) -> tuple[int, str]:
    """Reads a set, and writes its two sides to `paths`; returns the number of pairs and the SHA-256 of both sides.

    Raises:
        RecipeError: a line cannot be used; names file and line.
    """
    count, sums, pairs = 0, (hashlib.sha256(), hashlib.sha256()), read_pairs(files)
    with open(paths[0], "wb") as left, open(paths[1], "wb") as right:
        while batch := list(islice(pairs, BATCH)):
            count += len(batch)
            for lines, found, file in zip(zip(*batch, strict=True), sums, (left, right), strict=True):
                data = b"".join(line + b"\n" for line in lines)
                found.update(data)
                file.write(data)
    return count, fingerprint([found.hexdigest() for found in sums])[:16]


def copy(run: Run, directory: Path) -> None:
    """Copies the text that the settings of a run name; RecipeError if it is not the text that they were made for."""
    corpus = run.recipe.corpus
    assert corpus.text is not None
    for split, files in find_splits(corpus.text, run.pair).items():
        _, checksum = read_set(files, [directory / f"{split}.{side}" for side in (run.source, run.target)])
        if checksum != corpus.checksums.get(split):
            raise RecipeError(f"{files[0]}: the text changed since this run began: run again.")
