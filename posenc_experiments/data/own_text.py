"""Finds, checks and copies the user's own text: a directory of train.en and train.de, or of train.tsv.

Validation and test sets have the same form; any file may be compressed as .gz. The lines are copied unchanged to the
directory of the corpus, so that runs do not depend on files that are edited later. The copy does not depend on the
form of the files, and so neither do the experiments.
"""

import codecs
import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from textwrap import shorten

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import fingerprint
from posenc_experiments.base.run import Run
from posenc_experiments.data import text
from posenc_experiments.data.context import DOCUMENTS

TRAIN, VALID, TEST, TSV = "train", "valid", "test", "tsv"
NOWHERE = Path(os.devnull)
IS_DOCUMENTS = re.compile(rf"\.{DOCUMENTS}(\.gz)?$")  # files that are no text
BATCH = 5_000  # pairs written at a time
Splits = dict[str, list[Path]]  # for each set, the files of the two sides, or one .tsv of both


def find_splits(directory: Path, pair: str) -> Splits:
    """The files of the training, validation and test sets, tests in the order of their names.

    Raises:
        RecipeError: a file is missing, or a set is given in two forms.
    """
    sides, names = pair.split("-"), sorted(name for name in os.listdir(directory) if not IS_DOCUMENTS.search(name))
    ending = rf"\.({'|'.join(sides)}|{TSV})(\.gz)?"
    form = re.compile(rf"({TRAIN}|{VALID}|{TEST}[\w.-]*){ending}")
    sets: dict[str, list[tuple[str, Path]]] = {TRAIN: [], VALID: []}
    for match in filter(None, map(form.fullmatch, names)):
        sets.setdefault(match[1], []).append((match[2], directory / match[0]))
    for name in names:
        if re.fullmatch(rf"{TEST}.*{ending}", name) and not form.fullmatch(name):
            raise RecipeError(f"{directory / name}: rename it; a test set's name is of letters, digits, '.', '_', '-'.")
    # A test set that also has other languages may belong to another pair, so it is left out.
    known = {path.name for files in sets.values() for _, path in files}
    foreign = {name.removesuffix(".gz").rpartition(".")[0] for name in names if name not in known} - {TRAIN, VALID}
    splits, missing = Splits(), list[str]()
    for split, files in sets.items():
        kinds = dict(files)
        if len(kinds) < len(files) or (TSV in kinds and len(kinds) > 1):
            raise RecipeError(f"{directory} has {' and '.join(path.name for _, path in files)}: remove all but one.")
        if kinds.keys() in ({TSV}, {*sides}):
            splits[split] = [kinds[kind] for kind in (sides if len(kinds) > 1 else [TSV])]
        elif split not in foreign:
            missing += [f"{split}.{side}" for side in sides if side not in kinds]
    if not missing and len(splits) < 3:
        missing = [f"{TEST}.{side}" for side in sides]
    if missing:
        raise RecipeError(
            f"{directory} has no {', '.join(missing)} for --pair {pair}: add them, plain or as .gz, or each pair of "
            f"them as one .tsv (source, tab, target); it has {shorten(', '.join(names), 160) or 'no files'}."
            f"{_how_to_split(directory, splits.get(TRAIN, []), names)}"
        )
    return splits


def _how_to_split(directory: Path, train: Sequence[Path], names: Sequence[str]) -> str:
    """A line for a shell that takes a missing validation or test set from the training text; empty if none is missing.

    It keeps the whole training text as train-all.en and train-all.de, so that it may be run again.
    """
    lacking = [split for split in (VALID, TEST) if not any(name.startswith(split) for name in names)]
    if not train or not lacking:
        return ""
    unpack = [f"gunzip {path.name}" for path in train if path.suffix == ".gz"]
    sides = " ".join(path.name.split(".")[1] for path in train)
    chosen = " : ".join(f'NR % 100 == {number} ? "{split}"' for number, split in enumerate(lacking, 1))
    keep = f"[ -e {TRAIN}-all.$side ] || mv {TRAIN}.$side {TRAIN}-all.$side"
    split = f"""awk -v side=$side '{{ print > (({chosen} : "{TRAIN}") "." side) }}' {TRAIN}-all.$side"""
    loop = f"for side in {sides}; do {keep}; LC_ALL=C {split}; done"
    line = " && ".join([f"cd {shlex.quote(str(directory))}", *unpack, loop])
    return f" To take one of a hundred training pairs for {' and one for '.join(lacking)}:\n  {line}"


def read_pairs(files: Sequence[Path]) -> Iterator[tuple[bytes, ...]]:
    """The pairs of lines of a set; RecipeError, naming file and line, if a line cannot be used."""
    if len(files) == 2:
        yield from text.pairs(files, *map(_lines, files))
        return
    for number, line in enumerate(_lines(files[0]), 1):
        cells = tuple(line.split(b"\t"))
        if len(cells) != 2:
            raise RecipeError(f"{files[0]}, line {number}: it has {len(cells)} columns; write source, one tab, target.")
        yield cells


def _lines(path: Path) -> Iterator[bytes]:
    with text.open_raw(path) as file:
        for number, line in enumerate(file, 1):
            if b"\0" in line:
                raise RecipeError(
                    f"{path}, line {number}: it has a NUL byte, which no text has; save the file as UTF-8."
                )
            if not path.name.startswith(f"{TRAIN}."):
                text.decode(line, path, number)
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
            for lines, checksum, file in zip(zip(*batch, strict=True), sums, (left, right), strict=True):
                data = b"".join(line + b"\n" for line in lines)
                checksum.update(data)
                file.write(data)
    if not count:
        raise RecipeError(f"{files[0]} is empty: write its text to it.")
    return count, fingerprint([checksum.hexdigest() for checksum in sums])[:16]


def copy(run: Run, directory: Path) -> None:
    """Copies the text that the settings of a run name; RecipeError if it is not the text that they were made for."""
    corpus = run.recipe.corpus
    assert corpus.text is not None
    for split, files in find_splits(corpus.text, run.pair).items():
        _, checksum = read_set(files, [directory / f"{split}.{side}" for side in (run.source, run.target)])
        if checksum != corpus.checksums.get(split):
            raise RecipeError(f"{files[0]}: the text changed since this run began: run again.")
