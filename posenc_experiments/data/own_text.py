"""Finds, checks and copies the user's own text: a directory of train.en and train.de, or of train.tsv.

Validation and test sets have the same form; any file may be compressed as .gz. The lines are copied unchanged to the
directory of the corpus, so that runs do not depend on files that are edited later. The copy does not depend on the
form of the files, and so neither do the experiments.
"""

import codecs
import hashlib
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from gzip import BadGzipFile
from itertools import chain, islice, zip_longest
from pathlib import Path

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import atomic_directory, fingerprint, is_done, locked, set_done
from posenc_experiments.base.run import Run
from posenc_experiments.data.prepared import download_dir
from posenc_experiments.data.text import open_binary

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
        if kind in kinds and kind in (*sides, TSV):
            raise RecipeError(f"{directory} has {kinds[kind].name} and {name}: remove one of the two.")
        kinds[kind] = directory / name
    splits, missing = Splits(), list[str]()
    for split, kinds in found.items():
        given = [side for side in sides if side in kinds]
        if TSV in kinds:
            if given:
                raise RecipeError(
                    f"{directory} has {kinds[TSV].name} and {kinds[given[0]].name}: remove one of the two."
                )
            splits[split] = [kinds[TSV]]
        elif len(given) == 2:
            splits[split] = [kinds[side] for side in sides]
        # A test set that also has other languages may belong to another pair, so it is left out.
        elif split in (TRAIN, VALID) or (given and kinds.keys() == set(given)):
            missing += [f"{split}.{side}" for side in sides if side not in given]
    tests = [split for split in splits if split not in (TRAIN, VALID)]
    if not tests and not any(name.startswith("test") for name in missing):
        missing += [f"test.{side}" for side in sides if side not in found.get("test", {})]
    if missing:
        raise RecipeError(
            f"{directory} has no {', '.join(missing)} for --pair {pair}: add them, plain or as .gz, or each pair of "
            f"them as one .tsv (source, tab, target); it has {_shortened(names)}."
        )
    for test in tests:
        if not re.fullmatch(r"[\w.-]+", test):
            raise RecipeError(
                f"{splits[test][0]}: rename it; a test set's name is of letters, digits, '.', '_' and '-'."
            )
    return splits


def _shortened(names: Sequence[str]) -> str:
    return ", ".join([*names[:12], *(["..."] if len(names) > 12 else [])]) or "no files"


def read_pairs(files: Sequence[Path]) -> Iterator[tuple[bytes, bytes]]:
    """The pairs of lines of a set; RecipeError, naming file and line, if a line cannot be used."""
    pairs = _columns(files[0]) if len(files) == 1 else _side_by_side(files)
    first = next(pairs, None)
    if first is None:
        raise RecipeError(f"{files[0]} is empty: write its text to it.")
    yield from chain([first], pairs)


def _columns(path: Path) -> Iterator[tuple[bytes, bytes]]:
    for number, line in enumerate(_lines(path), 1):
        cells = line.split(b"\t")
        if len(cells) != 2:
            raise RecipeError(f"{path}, line {number}: it has {len(cells)} columns; write source, one tab, target.")
        yield cells[0], cells[1]


def _side_by_side(files: Sequence[Path]) -> Iterator[tuple[bytes, bytes]]:
    counts = [0, 0]
    for left, right in zip_longest(*map(_lines, files)):
        counts = [counts[0] + (left is not None), counts[1] + (right is not None)]
        if counts[0] == counts[1]:
            yield left, right
    if counts[0] != counts[1]:
        raise RecipeError(
            f"{files[0]} has {counts[0]:,} lines and {files[1]} has {counts[1]:,}: they are not translations of each "
            "other line by line; correct or replace them."
        )


def _lines(path: Path) -> Iterator[bytes]:
    try:
        if not path.is_file():
            raise RecipeError(f"{path} is not a file, or is a link to nothing: replace it.")
        with open_binary(path) as file:
            for number, line in enumerate(file, 1):
                if b"\0" in line:
                    raise RecipeError(
                        f"{path}, line {number}: it has a NUL byte, which no text has; save the file as UTF-8, or "
                        "name it .gz if it is compressed."
                    )
                # Windows editors write a byte order mark before the first line.
                yield (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).removesuffix(b"\n")
    except (EOFError, BadGzipFile, zlib.error) as error:
        raise RecipeError(f"{path} is not a whole gzip file ({error}): compress its text again.") from None


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


def take(run: Run) -> None:
    """Runs the stage `download` for the user's own text: copies it, unless it was copied before."""
    corpus, directory = run.recipe.corpus, download_dir(run)
    assert corpus.text is not None
    if run.dry_run:
        run.say(f"# copy the text of {corpus.text} to {directory}")
        return
    with locked(directory.parent):
        if is_done(directory, "download"):
            run.say(f"download: done before, {corpus.text} has not changed")
            return
        splits = find_splits(corpus.text, run.pair)
        with atomic_directory(directory) as temporary:
            for split, files in splits.items():
                _, checksum = read_set(files, [temporary / f"{split}.{side}" for side in (run.source, run.target)])
                if checksum != corpus.checksums.get(split):
                    raise RecipeError(f"{files[0]}: the text changed since this run began: run again.")
            set_done(temporary, "download")
        run.say(f"download: {corpus.text} copied to {directory}")


def origin(run: Run, split: str, side: str) -> str | None:
    """The user's file that a side of a split was copied from; None if there is none."""
    text = run.recipe.corpus.text
    try:
        files = [] if text is None else find_splits(text, run.pair).get(split, [])
    except RecipeError:  # the text was moved since
        return None
    column = (run.source, run.target).index(side)
    if len(files) == 1:
        return f"{files[0]}, column {column + 1}"
    return str(files[column]) if files else None
