"""`prepare.context`: joins each sentence with the one before it in its document, on both sides.

Before text is split into tokens, a line holds both sentences with a newline between them or, once it is cleaned, a tab:
neither occurs within a sentence. Then SEPARATOR is between their tokens.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import AnyStr

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.data.subwords import Subwords
from posenc_experiments.data.text import read_lines

SEPARATOR = "<sep>"
#: words that are entries of fairseq's dictionaries by themselves
SYMBOLS = {"<s>", "<pad>", "</s>", "<unk>", *(f"madeupword{number:04}" for number in range(8))}
DOCUMENTS = "documents"  # SPLIT.documents names the document of each line
Tokens = list[str]


def with_before(lines: Iterable[AnyStr], documents: Path | None, between: AnyStr) -> Iterator[AnyStr]:
    """Each line, behind the one before it if both are of one document; as they are if there is no file of documents."""
    if documents is None:
        yield from lines
        return
    before, its_document = None, None
    for line, document in zip(lines, read_lines(documents), strict=True):
        yield line if before is None or its_document != document else before + between + line
        before, its_document = line, document


def encode(subwords: Subwords, lines: Iterable[str]) -> list[tuple[Tokens, Tokens]]:
    """The tokens of the sentence before, none if there is none, and those of the sentence of each line.

    Raises:
        RecipeError: a token is one of fairseq's symbols, which only `subwords: none` does not split.
    """
    parts = [line.rpartition("\t") for line in lines]
    befores, sentences = [part[0] for part in parts], [part[2] for part in parts]
    encoded: Iterable[Tokens] = subwords.encode(befores) if any(befores) else [[]] * len(befores)
    pairs = list(zip(encoded, subwords.encode(sentences), strict=True))
    for _, tokens in pairs:
        if symbols := SYMBOLS.intersection(tokens):
            raise RecipeError(
                f"'{symbols.pop()}' is a symbol of fairseq's dictionaries, not a word: replace it, or write "
                f"prepare.subwords = sentencepiece; it is in the text '{' '.join(tokens)}'."
            )
    return pairs


def join(sides: Sequence[tuple[Tokens, Tokens]], limit: int) -> list[Tokens]:
    """The tokens of each side; with those before, unless a part is empty or one before has more than `limit` tokens."""
    if all(before and sentence and len(before) <= limit for before, sentence in sides):
        return [[*before, SEPARATOR, *sentence] for before, sentence in sides]
    return [sentence for _, sentence in sides]


def last_part(tokens: Tokens) -> Tokens:
    """The tokens after the last separator, all if there is none."""
    return tokens[len(tokens) - tokens[::-1].index(SEPARATOR) :] if SEPARATOR in tokens else tokens
