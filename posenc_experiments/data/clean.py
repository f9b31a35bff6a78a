"""Cleans raw training pairs in batches, so that several processes can share the work."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.languages import length
from posenc_experiments.base.recipe import Prepare
from posenc_experiments.data import text
from posenc_experiments.data.context import with_before
from posenc_experiments.data.counts import TrainCounts
from posenc_experiments.data.raw import Raw

BATCH = 5_000  # pairs
Batch = tuple[list[bytes], list[bytes]]
Cleaned = tuple[bytes, bytes, TrainCounts]
#: words that are entries of fairseq's dictionaries by themselves
SYMBOLS = re.compile(r"(?<!\S)(?:<s>|<pad>|</s>|<unk>|madeupword\d{4})(?!\S)")


def count_lines(lines: Iterable[str], name: str, settings: Prepare, first: int = 1) -> int:
    """The number of lines of a file, from its line `first` on.

    Raises:
        RecipeError: a word would become one of fairseq's symbols; subwords split such words.
    """
    number = first - 1
    for number, line in enumerate(lines, first):
        if settings.subwords == "none" and (found := SYMBOLS.search(line.lower() if settings.lowercase else line)):
            raise RecipeError(
                f"{name}, line {number:,}: '{found[0]}' is a symbol of fairseq's dictionaries, not a word: replace it, "
                "or write prepare.subwords = sentencepiece."
            )
    return number - first + 1


def read_batches(
    parts: Sequence[tuple[Raw, Raw]], sizes: list[int], settings: Prepare | None = None
) -> Iterator[Batch]:
    """Reads both sides of each part together, in batches.

    Args:
        parts: the two files of each part.
        sizes: a list that the number of lines of each part is appended to.
        settings: checks raw text for words that `count_lines` refuses.

    Raises:
        RecipeError: the files of a part have different numbers of lines; names both. Or a word is refused.
    """
    for one, other in parts:
        sizes.append(0)
        ours, theirs = (with_before(text.read_lines(raw.path), raw.documents, b"\n") for raw in (one, other))
        while True:
            left, right = list(islice(ours, BATCH)), list(islice(theirs, BATCH))
            if len(left) != len(right):
                counts = [sizes[-1] + len(had) + sum(1 for _ in rest) for had, rest in ((left, ours), (right, theirs))]
                raise RecipeError(
                    f"{one.name} has {counts[0]:,} lines and {other.name} has {counts[1]:,}: they are not translations "
                    "of each other line by line; fix or replace them."
                )
            if not left:
                break
            if settings is not None:
                for raw, lines in ((one, left), (other, right)):
                    count_lines((line.decode("utf-8", "replace") for line in lines), raw.name, settings, sizes[-1] + 1)
            sizes[-1] += len(left)
            yield left, right


def clean_batch(batch: Batch, settings: Prepare, source: str = "") -> Cleaned:
    """The cleaned pairs as lines of each side, and the counts of those kept and dropped; `source` is a language."""
    counts = TrainCounts()
    sides: tuple[list[str], list[str]] = ([], [])
    for pair in zip(*batch, strict=True):
        counts.read += 1
        parts = [line.rpartition(b"\n") for line in pair]
        befores, (left, right) = _befores([part[0] for part in parts]), [part[2] for part in parts]
        try:
            one, other = text.clean(left.decode("utf-8")), text.clean(right.decode("utf-8"))
        except UnicodeDecodeError:
            counts.bad_utf8 += 1
            counts.first_bad_utf8 = counts.first_bad_utf8 or counts.read
            continue
        counts.odd_separators += text.odd_separators(left) or text.odd_separators(right)
        if not one or not other:
            counts.empty += 1
        elif settings.drop_identical and one == other:
            counts.identical += 1
        elif (words := length(one, source)) < settings.train_min_words:
            counts.few_words += 1
        elif settings.train_max_words and words > settings.train_max_words:
            counts.many_words += 1
        else:
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
