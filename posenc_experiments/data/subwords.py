"""Methods that split sentences into tokens and join tokens to sentences: one class each, listed in METHODS."""

import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import sentencepiece
from subword_nmt import apply_bpe, learn_bpe

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.recipe import Prepare

BATCH = 2_000  # lines held at once
THREADS = 16  # fixed, because the model file records it and must not depend on the machine


@cache
def normalizer(language: str, lowercase: bool, punctuation: bool) -> Callable[[str], str]:
    """A function that changes one line of `language` before it is split into tokens.

    It changes the text of a model (prepare.lowercase and normalize-punctuation) and that of the lowercased score. It
    lowercases first, as Multi30k's own script does, and then applies sacremoses' version of normalize-punctuation.
    """
    moses = None
    if punctuation:
        import sacremoses  # here, because half of the time of --help would go to it

        moses = sacremoses.MosesPunctNormalizer(language)

    def normalize(line: str) -> str:
        line = line.lower() if lowercase else line
        return line if moses is None else str(moses.normalize(line))

    return normalize


class Subwords:
    """A learnt method for the text of one language. This one learns nothing: words between spaces are the tokens.

    Text is first changed as prepare.lowercase and prepare.normalize-punctuation say.
    """

    #: what is learnt, in the directory of the prepared data
    file = ""
    #: the packages whose versions change the tokens
    libraries: tuple[str, ...] = ()

    def __init__(self, directory: Path, language: str, settings: Prepare) -> None:
        self.settings = settings
        self.change = normalizer(language, settings.lowercase, settings.normalize_punctuation)

    @classmethod
    def learn(cls, directory: Path, lines: Iterable[tuple[str, str]], settings: Prepare) -> None:
        """Learns from (language, changed line) pairs."""

    def encode(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """The tokens of each line, streamed; no token contains white space."""
        return self.split(map(self.change, lines))

    def split(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """The tokens of changed lines."""
        return (line.split() for line in lines)

    def decode(self, tokens: list[str]) -> str:
        """The sentence of these tokens, detokenized."""
        return " ".join(tokens)


class WrongSize(RecipeError):
    """A text cannot be split into so many subwords; SentencePiece's message is part of it."""


class SentencePiece(Subwords):
    """Kudo and Richardson 2018, with BPE, learnt on raw text."""

    file = "sentencepiece.model"
    libraries = ("sentencepiece",)

    def __init__(self, directory: Path, language: str, settings: Prepare) -> None:
        super().__init__(directory, language, settings)
        self.model = sentencepiece.SentencePieceProcessor(model_file=str(directory / self.file))

    @classmethod
    def learn(cls, directory: Path, lines: Iterable[tuple[str, str]], settings: Prepare) -> None:
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
            reason = str(error).rsplit("] ", 1)[-1].strip().rstrip(".")
            raise WrongSize(
                f"SentencePiece cannot learn {settings.vocabulary:,} subwords from this text: {reason}; change "
                "prepare.vocabulary, in the recipe or by --set prepare.vocabulary=N."
            ) from None
        (directory / cls.file).write_bytes(model.getvalue())

    def split(self, lines: Iterable[str]) -> Iterator[list[str]]:
        iterator = iter(lines)
        while batch := list(itertools.islice(iterator, BATCH)):
            yield from self.model.encode(batch, out_type=str, num_threads=1)

    def decode(self, tokens: list[str]) -> str:
        return str(self.model.decode(tokens))


_SLASH = (r"(?<=\w) / (?=\w)", "/")
_FINNISH_ENDINGS = "[nt]|t?[aä]|ss[aä]|st[aä]|n[aä]|ll[aä]|lt[aä]|lle|ksi|iin|een|h[uyaoö]n"
#: what sacremoses leaves apart: patterns, and what replaces them. After a change, raise DETOKENIZATION.
APART = {
    "cs": [_SLASH, (r"\b(\d{1,2}): (?=\d{1,2}\b)", r"\1:"), (r"(?<=\b[OD]) '(?=[A-Z])", "'")],
    "fi": [_SLASH, (rf"(?<=[A-ZÅÄÖ\d]): (?=(?:{_FINNISH_ENDINGS})\b(?!\.))", ":")],  # EU:n, of the EU
    "fr": [_SLASH, (r"(?<=\w) ’ (?=\w)", "’")],
    "ru": [_SLASH, (r"« ", "«"), (r" »", "»")],
}
#: counts the changes of APART and of how Czech is joined, for the identity of translations
DETOKENIZATION = 2


def detokenizer(language: str) -> Callable[[list[str]], str]:
    """A function that joins Moses' tokens to a sentence: sacremoses, without faults of its rules for some languages."""
    import sacremoses

    moses, end = sacremoses.MosesDetokenizer(lang=language), ""
    if language == "cs":
        # If a sentence ends with a number and a full stop, sacremoses joins each of its numbers with the word before:
        # so another word ends it. The rule that reads this attribute ends in a TypeError.
        end, moses.IS_FRENCH_CONRTACTION = "x", re.compile("(?!)")

    def detokenize(tokens: list[str]) -> str:
        sentence = str(moses.detokenize([*tokens, end])).removesuffix(end).rstrip()
        for pattern, joined in APART.get(language, []):
            sentence = re.sub(pattern, joined, sentence)
        return sentence

    return detokenize


class SubwordNmt(Subwords):
    """Sennrich et al. 2016: byte-pair encoding of Moses tokens, as in older recipes."""

    file = "bpe.codes"
    libraries = ("subword-nmt", "sacremoses")

    def __init__(self, directory: Path, language: str, settings: Prepare) -> None:
        import sacremoses

        super().__init__(directory, language, settings)
        with open(directory / self.file, encoding="utf-8") as file:
            self.bpe = apply_bpe.BPE(file)
        self.tokenizer = sacremoses.MosesTokenizer(lang=language)
        self.detokenize = detokenizer(language)

    @classmethod
    def learn(cls, directory: Path, lines: Iterable[tuple[str, str]], settings: Prepare) -> None:
        """Learns `vocabulary` merges from (language, line) pairs."""
        import sacremoses

        tokenizer = cache(lambda language: sacremoses.MosesTokenizer(lang=language))
        tokens = (str(tokenizer(language).tokenize(line, return_str=True)) for language, line in lines)
        with open(directory / cls.file, "w", encoding="utf-8", newline="\n") as codes:
            learn_bpe.learn_bpe(tokens, codes, settings.vocabulary)

    def split(self, lines: Iterable[str]) -> Iterator[list[str]]:
        for line in lines:
            yield str(self.bpe.process_line(self.tokenizer.tokenize(line, return_str=True))).split()

    def decode(self, tokens: list[str]) -> str:
        text = " ".join(tokens).replace("@@ ", "").removesuffix("@@")
        return self.detokenize(text.split())


METHODS = {"sentencepiece": SentencePiece, "subword-nmt": SubwordNmt, "none": Subwords}


def load(directory: Path, language: str, settings: Prepare) -> Subwords:
    """Loads the subwords learnt into `directory`, for one language."""
    return METHODS[settings.subwords](directory, language, settings)


def detokenization(language: str, settings: Prepare) -> dict[str, int]:
    """The detokenization in the identity of translations into a language; nothing where it never changed."""
    return {"detokenization": DETOKENIZATION} if settings.subwords == "subword-nmt" and language in APART else {}


def lines_of_other_form(lines: Iterable[str], settings: Prepare) -> list[int]:
    """The numbers of the lines, from 1, that SentencePiece's normalization changes: a model never writes them so."""
    if settings.subwords != "sentencepiece" or settings.normalize == "identity":
        return []
    rule = sentencepiece.SentencePieceNormalizer(
        rule_name=settings.normalize, add_dummy_prefix=False, escape_whitespaces=False
    )
    return [number for number, line in enumerate(lines, 1) if rule.normalize(line) != line]


def learn(directory: Path, lines: Iterable[tuple[str, str]], settings: Prepare) -> None:
    """Learns subwords from (language, line) pairs into `directory`, and changes lines as the loaded subwords will."""
    how = (settings.lowercase, settings.normalize_punctuation)
    changed = ((language, normalizer(language, *how)(line)) for language, line in lines)
    METHODS[settings.subwords].learn(directory, changed, settings)
