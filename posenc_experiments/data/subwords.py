"""Methods that split sentences into tokens and join tokens to sentences: one class each, listed in METHODS."""

import io
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import sacremoses
import sentencepiece
from subword_nmt import apply_bpe, learn_bpe

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.recipe import SUBWORDS, Prepare
from posenc_experiments.data.normalize import normalizer

BATCH = 2_000  # lines held at once
THREADS = 16  # fixed, because the model file records it and must not depend on the machine


class Subwords(Protocol):
    """A learnt method for the text of one language."""

    def encode(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """The tokens of each line, streamed; no token contains white space."""

    def decode(self, tokens: list[str]) -> str:
        """The sentence of these tokens, detokenized."""


class WrongSize(RecipeError):
    """A text cannot be split into so many subwords; it says the least or the most."""

    def __init__(self, message: str, least: int = 0, most: int | None = None) -> None:
        super().__init__(message)
        self.least, self.most = least, most


class SentencePiece:
    """Kudo and Richardson 2018, with BPE, learnt on raw text."""

    file = "sentencepiece.model"

    def __init__(self, directory: Path, language: str) -> None:
        self.model = sentencepiece.SentencePieceProcessor(model_file=str(directory / self.file))

    @classmethod
    def learn(cls, directory: Path, lines: Iterable[tuple[str, str]], settings: Prepare) -> None:
        """Learns from (language, line) pairs."""
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(line for _, line in lines),
                model_writer=model,
                model_type="bpe",
                vocab_size=settings.vocabulary,
                character_coverage=settings.character_coverage,
                normalization_rule_name=settings.normalize,
                num_threads=THREADS,
                max_sentence_length=1 << 16,
                train_extremely_large_corpus=True,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise _refusal(str(error), settings.vocabulary) from None
        (directory / cls.file).write_bytes(model.getvalue())

    def encode(self, lines: Iterable[str]) -> Iterator[list[str]]:
        for batch in batches(lines):
            yield from self.model.encode(batch, out_type=str, num_threads=1)

    def decode(self, tokens: list[str]) -> str:
        return str(self.model.decode(tokens))


def _refusal(message: str, size: int) -> RecipeError:
    """SentencePiece's message about a text and a number of subwords, in our words."""
    least, most = (re.search(pattern, message) for pattern in (r"required_chars\. \d+ vs (\d+)", r"value <= (\d+)"))
    what, where = f"SentencePiece cannot learn {size:,} subwords from this text", "set prepare.vocabulary"
    if least:
        return WrongSize(
            f"{what}, whose different characters alone are {int(least[1]):,}: {where} to more.", least=int(least[1])
        )
    if most:
        return WrongSize(
            f"{what}, which has {int(most[1]):,} at most: {where} to less, such as a quarter.", most=int(most[1])
        )
    reason = message.rsplit("] ", 1)[-1].strip().rstrip(".")
    return RecipeError(f"{what}: {reason}; change prepare.vocabulary, in the recipe or by --set prepare.vocabulary=N.")


class SubwordNmt:
    """Sennrich et al. 2016: byte-pair encoding of Moses tokens, as in older recipes."""

    file = "bpe.codes"

    def __init__(self, directory: Path, language: str) -> None:
        with open(directory / self.file, encoding="utf-8") as file:
            self.bpe = apply_bpe.BPE(file)
        self.tokenizer = sacremoses.MosesTokenizer(lang=language)
        self.detokenizer = sacremoses.MosesDetokenizer(lang=language)

    @classmethod
    def learn(cls, directory: Path, lines: Iterable[tuple[str, str]], settings: Prepare) -> None:
        """Learns `vocabulary` merges from (language, line) pairs."""
        tokenizers: dict[str, sacremoses.MosesTokenizer] = {}

        def tokens() -> Iterator[str]:
            for language, line in lines:
                if language not in tokenizers:
                    tokenizers[language] = sacremoses.MosesTokenizer(lang=language)
                yield str(tokenizers[language].tokenize(line, return_str=True))

        with open(directory / cls.file, "w", encoding="utf-8", newline="\n") as codes:
            learn_bpe.learn_bpe(tokens(), codes, settings.vocabulary)

    def encode(self, lines: Iterable[str]) -> Iterator[list[str]]:
        for line in lines:
            yield str(self.bpe.process_line(self.tokenizer.tokenize(line, return_str=True))).split()

    def decode(self, tokens: list[str]) -> str:
        text = " ".join(tokens).replace("@@ ", "").removesuffix("@@")
        return str(self.detokenizer.detokenize(text.split()))


class NoSubwords:
    """No subwords: tokens are separated by spaces."""

    file = ""

    def __init__(self, directory: Path, language: str) -> None:
        pass

    @classmethod
    def learn(cls, directory: Path, lines: Iterable[tuple[str, str]], settings: Prepare) -> None:
        """Does nothing: words need not be learnt."""

    def encode(self, lines: Iterable[str]) -> Iterator[list[str]]:
        return (line.split() for line in lines)

    def decode(self, tokens: list[str]) -> str:
        return " ".join(tokens)


METHODS: dict[str, type[SentencePiece] | type[SubwordNmt] | type[NoSubwords]] = {
    "sentencepiece": SentencePiece,
    "subword-nmt": SubwordNmt,
    "none": NoSubwords,
}
assert tuple(METHODS) == SUBWORDS


class Normalized:
    """Subwords of text that is first lowercased or has its punctuation normalized."""

    def __init__(self, subwords: Subwords, language: str, settings: Prepare) -> None:
        self.subwords = subwords
        self.change = normalizer(language, settings.lowercase, settings.normalize_punctuation)

    def encode(self, lines: Iterable[str]) -> Iterator[list[str]]:
        return self.subwords.encode(map(self.change, lines))

    def decode(self, tokens: list[str]) -> str:
        return self.subwords.decode(tokens)


def load(directory: Path, language: str, settings: Prepare) -> Subwords:
    """Loads the subwords learnt into `directory`, for one language."""
    subwords = METHODS[settings.subwords](directory, language)
    return Normalized(subwords, language, settings) if settings.changes else subwords


def of_other_form(lines: Iterable[str], settings: Prepare) -> list[int]:
    """The numbers of the lines, from 1, that SentencePiece's normalization changes: a model never writes them so."""
    if settings.subwords != "sentencepiece" or settings.normalize == "identity":
        return []
    rule = sentencepiece.SentencePieceNormalizer(
        rule_name=settings.normalize, add_dummy_prefix=False, escape_whitespaces=False
    )
    return [number for number, line in enumerate(lines, 1) if rule.normalize(line) != line]


def learn(directory: Path, lines: Iterable[tuple[str, str]], settings: Prepare) -> None:
    """Learns subwords from (language, line) pairs into `directory`, and changes lines as the loaded subwords will."""
    if settings.changes:
        how = (settings.lowercase, settings.normalize_punctuation)
        lines = ((language, normalizer(language, *how)(line)) for language, line in lines)
    METHODS[settings.subwords].learn(directory, lines, settings)


def batches(lines: Iterable[str], size: int = BATCH) -> Iterator[list[str]]:
    """Lists of at most `size` lines."""
    iterator = iter(lines)
    while batch := list(itertools.islice(iterator, size)):
        yield batch
