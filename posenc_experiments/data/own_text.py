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
from collections.abc import Iterator, Mapping, Sequence
from gzip import BadGzipFile
from itertools import chain, islice, zip_longest
from pathlib import Path

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import (
    Markers,
    atomic_directory,
    fingerprint,
    locked,
    read_json,
    write_json,
)
from posenc_experiments.base.run import Run
from posenc_experiments.data.checksums import CHECKSUMS, checksums
from posenc_experiments.data.text import open_binary

ORIGIN = "text.json"  # in the directory of the pair's data: the directory of the text, and the paths of its files
TRAIN, VALID, TSV = "train", "valid", "tsv"
BATCH = 5_000  # pairs written at a time
Splits = dict[str, list[Path]]  # for each set, the files of the two sides, or one .tsv of both


def find_splits(directory: Path, pair: str) -> Splits:
    """The files of the training, validation and test sets, tests in the order of their names.

    Raises:
        RecipeError: the directory cannot be read, a file is missing, or a set is given in two forms.
    """
    sides = pair.split("-")
    names = _list(directory)
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


def _list(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        raise RecipeError(f"--text {directory}: there is no such directory.") from None
    except NotADirectoryError:
        raise RecipeError(f"--text {directory}: this is a file; name the directory that holds the text.") from None
    except OSError as error:
        raise RecipeError(f"--text {directory}: {error.strerror}: change its permissions.") from None


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
    except OSError as error:
        raise RecipeError(f"{path} cannot be read ({error.strerror}): make it readable.") from None


def count_pairs(splits: Mapping[str, Sequence[Path]]) -> dict[str, int]:
    """The number of pairs of each set; RecipeError if a line of any set cannot be used."""
    return {split: sum(1 for _ in read_pairs(files)) for split, files in splits.items()}


def take(run: Run) -> None:
    """Runs the stage `download` for the user's own text: copies it, unless the copy already has the same content."""
    text = run.recipe.corpus.text
    assert text is not None
    splits = find_splits(text, run.pair)
    for split in (*run.recipe.corpus.train, run.recipe.corpus.valid, *run.recipe.corpus.tests):
        if split not in splits:
            raise RecipeError(f"`corpus` names '{split}', but {text} has {', '.join(splits)}: correct the name.")
    if run.dry_run:
        run.say(f"# copy the text of {text} to {run.download_dir}")
        return
    for made in (run.download_dir, run.pair_dir):
        if text.resolve().is_relative_to(made.resolve()):
            raise RecipeError(f"--text {text}: this run writes there; move the text, or give another --name.")
    markers, stage = Markers(run.download_dir.parent), f"text-{run.pair}"
    origin = {"directory": str(text), "files": dict(_origins(splits, run))}
    sums = _copy(run, splits, None)
    if markers.is_done(stage, fingerprint(sums)):
        path = run.pair_dir / ORIGIN
        if not path.is_file() or read_json(path) != origin:  # the same text was moved, or is in files of another form
            write_json(path, origin)
        run.say(f"download: done before, {text} has not changed")
        return
    _refuse_swapped(run, sums)
    with locked(run.download_dir.parent):
        if run.download_dir.exists() and not (run.download_dir / CHECKSUMS).is_file():
            raise RecipeError(f"{run.download_dir} is not a copy of text: move it away, or give another --name.")
        _refuse_other(run, text, was_copied=markers.path(stage).is_file())
        before = checksums(run)
        with atomic_directory(run.download_dir) as temporary:
            sums = _copy(run, splits, temporary)
            write_json(temporary / CHECKSUMS, sums)
            write_json(run.pair_dir / ORIGIN, origin)
            markers.clear(stage)
        markers.set_done(stage, fingerprint(sums), [run.download_dir / name for name in (*sums, CHECKSUMS)])
    changed = [name for name in {**before, **sums} if before.get(name) != sums.get(name)]
    if before and changed:
        run.say(f"download: the text changed since it was copied: {', '.join(changed)}")
    run.say(f"download: {text} copied to {run.download_dir}")


def _origins(splits: Splits, run: Run) -> Iterator[tuple[str, str]]:
    for split, files in splits.items():
        for column, side in enumerate((run.source, run.target), 1):
            yield f"{split}.{side}", str(files[column - 1]) if len(files) == 2 else f"{files[0]}, column {column}"


def origin(run: Run, name: str) -> str | None:
    """The user's file that a file of the copy was made from; None if there is no copy."""
    path = run.pair_dir / ORIGIN
    return dict(read_json(path)["files"]).get(name) if path.is_file() else None


def _copy(run: Run, splits: Splits, directory: Path | None) -> dict[str, str]:
    """Writes each side of each set to `directory`, unless it is None; returns the SHA-256 of each."""
    sums = {}
    for split, files in splits.items():
        names = [f"{split}.{side}" for side in (run.source, run.target)]
        hashes = [hashlib.sha256(), hashlib.sha256()]
        paths = [Path(os.devnull) if directory is None else directory / name for name in names]
        pairs = read_pairs(files)
        with open(paths[0], "wb") as left, open(paths[1], "wb") as right:
            while batch := list(islice(pairs, BATCH)):
                for lines, found, file in zip(zip(*batch, strict=True), hashes, (left, right), strict=True):
                    data = b"".join(line + b"\n" for line in lines)
                    found.update(data)
                    file.write(data)
        sums.update({name: found.hexdigest() for name, found in zip(names, hashes, strict=True)})
    return sums


def _refuse_other(run: Run, text: Path, was_copied: bool) -> None:
    """RecipeError if the data of this name and pair was made from other text, so that results would be mixed."""
    path = run.pair_dir / ORIGIN
    if path.is_file():
        other = str(read_json(path)["directory"])
        if other != str(text):
            raise RecipeError(
                f"--name {run.recipe.corpus.name}: {run.download_dir} holds the text of {other}, and that of {text} "
                "differs; give it another --name."
            )
    elif not was_copied and Markers(run.pair_dir).path("prepare").is_file():
        raise RecipeError(
            f"--name {run.recipe.corpus.name}: {run.pair_dir} holds the data of another recipe; give another --name."
        )


def _refuse_swapped(run: Run, sums: Mapping[str, str]) -> None:
    """RecipeError if the columns of a .tsv were read as the opposite languages for the reverse pair."""
    path = run.download_dir.with_name(f"{run.target}-{run.source}") / CHECKSUMS
    reverse = read_json(path) if path.is_file() else {}
    source, target = f"{TRAIN}.{run.source}", f"{TRAIN}.{run.target}"
    if source in reverse and (sums[source], sums[target]) == (reverse[target], reverse[source]) != (
        reverse[source],
        reverse[target],
    ):
        raise RecipeError(
            f"--pair {run.pair}: with --pair {run.target}-{run.source} the first column of the same text was "
            f"{run.target}; swap the columns, or name the files of each language."
        )
