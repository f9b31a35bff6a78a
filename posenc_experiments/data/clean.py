"""Cleans training pairs and splits them into tokens, in batches, so that several processes can share the work."""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path

from posenc_experiments.base.languages import length
from posenc_experiments.base.recipe import Prepare
from posenc_experiments.data import context, subwords, text
from posenc_experiments.data.counts import Counts
from posenc_experiments.data.raw import Part

BATCH = 5_000  # pairs
Batch = list[tuple[bytes, bytes]]
Cleaned = tuple[bytes, bytes, Counts]


def read_batches(parts: Iterable[Part], sizes: list[int]) -> Iterator[Batch]:
    """Reads both sides of each part together, in batches; appends the number of lines of each part to `sizes`."""
    for *paths, documents in parts:
        sizes.append(0)
        sides = [context.with_before(text.read_lines(path), documents, b"\n") for path in paths]
        pairs = text.pairs(paths, *sides)
        while batch := list(islice(pairs, BATCH)):
            sizes[-1] += len(batch)
            yield batch


def clean_batch(batch: Batch, settings: Prepare, source: str = "") -> Cleaned:
    """The cleaned pairs as lines of each side, and the counts of those kept and dropped; `source` is a language."""
    counts = Counts()
    sides: tuple[list[str], list[str]] = ([], [])
    for pair in batch:
        counts["read"] += 1
        parts = [line.rpartition(b"\n") for line in pair]
        befores, (left, right) = _befores([part[0] for part in parts]), [part[2] for part in parts]
        try:
            one, other = text.clean(left.decode("utf-8")), text.clean(right.decode("utf-8"))
        except UnicodeDecodeError:
            counts["bad_utf8"] += 1
            counts.setdefault("first_bad_utf8", counts["read"])
            continue
        if not one or not other:
            counts["empty"] += 1
        elif settings.drop_identical and one == other:
            counts["identical"] += 1
        elif (words := length(one, source)) < settings.train_min_words:
            counts["few_words"] += 1
        elif settings.train_max_words and words > settings.train_max_words:
            counts["many_words"] += 1
        else:
            counts["kept"] += 1
            for side, before, sentence in zip(sides, befores, (one, other), strict=True):
                side.append(before + sentence)
    return as_lines(sides[0]), as_lines(sides[1]), counts


def _befores(pair: list[bytes]) -> list[str]:
    """The cleaned sentences before those of a pair, each with a tab; both are empty unless both are text."""
    if not all(pair):  # as without prepare.context
        return ["", ""]
    try:
        cleaned = [text.clean(line.decode("utf-8")) for line in pair]
    except UnicodeDecodeError:
        return ["", ""]
    return [f"{line}\t" for line in cleaned] if all(cleaned) else ["", ""]


def as_lines(sentences: list[str]) -> bytes:
    return "".join(sentence + "\n" for sentence in sentences).encode("utf-8")


#: once in each process
_load = cache(subwords.load)


def encode_batch(batch: Batch, directory: Path, languages: tuple[str, str], settings: Prepare) -> Cleaned:
    """The pairs to train on as lines of tokens of each side, and the counts of those kept and dropped.

    Args:
        directory: of the learnt subwords.
    """
    counts = Counts()
    kept: tuple[list[str], list[str]] = ([], [])
    encoded = [
        context.encode(_load(directory, language, settings), (line.decode("utf-8") for line in lines))
        for language, lines in zip(languages, zip(*batch, strict=True), strict=True)
    ]
    for pair in zip(*encoded, strict=True):
        short, long = sorted(len(sentence) for _, sentence in pair)
        if short < settings.min_tokens:  # may be 0: subwords drop some characters, such as zero-width spaces
            counts["too_short"] += 1
        elif long > settings.max_tokens:
            counts["too_long"] += 1
        elif settings.max_ratio and long > settings.max_ratio * short:
            counts["odd_ratio"] += 1
        else:
            counts["kept"] += 1
            joined = context.join(pair, settings.max_tokens)
            counts["joined"] += joined[0] is not pair[0][1]
            for side, tokens in zip(kept, joined, strict=True):
                side.append(" ".join(tokens))
    return as_lines(kept[0]), as_lines(kept[1]), counts
