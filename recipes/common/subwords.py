"""How a sentence becomes tokens and tokens become a sentence again: one class a method, one registry at the
end.
"""

import io
import itertools
import multiprocessing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import sacremoses
import sentencepiece
from subword_nmt import apply_bpe, learn_bpe

from recipes.common.errors import RecipeError
from recipes.common.settings import Prepare

BATCH = 20_000  # lines held at once


class Subwords(Protocol):
    """A learnt way of splitting text, for one language."""

    def encode(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Tokens of each line, streamed; no token holds white space."""

    def decode(self, tokens: list[str]) -> str:
        """A sentence as people write it."""


class SentencePiece:
    """Kudo and Richardson 2018, as BPE: learnt on raw text, encoded by its C++ threads."""

    file = "sentencepiece.model"

    def __init__(self, directory: Path, language: str, workers: int = 1) -> None:
        self.model = sentencepiece.SentencePieceProcessor(model_file=str(directory / self.file))
        self.workers = workers

    @classmethod
    def learn(cls, directory: Path, lines: Iterable[tuple[str, str]], settings: Prepare, workers: int) -> None:
        """Learns from (language, line) pairs."""
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(line for _, line in lines),
                model_writer=model,
                model_type="bpe",
                vocab_size=settings.vocabulary,
                character_coverage=1.0,
                num_threads=workers,
                max_sentence_length=1 << 16,
                train_extremely_large_corpus=True,
                minloglevel=2,
            )
        except RuntimeError as error:
            reason = str(error).rsplit("] ", 1)[-1].strip().rstrip(".")
            raise RecipeError(
                f"SentencePiece cannot learn {settings.vocabulary} subwords from this text: {reason}; "
                "change 'vocabulary' in the .conf, section [prepare]."
            ) from None
        (directory / cls.file).write_bytes(model.getvalue())

    def encode(self, lines: Iterable[str]) -> Iterator[list[str]]:
        for batch in batches(lines):
            yield from self.model.encode(batch, out_type=str, num_threads=self.workers)

    def decode(self, tokens: list[str]) -> str:
        return str(self.model.decode(tokens))


class SubwordNmt:
    """Sennrich et al. 2016: byte-pair encoding of Moses tokens, as the older recipes did it."""

    file = "bpe.codes"

    def __init__(self, directory: Path, language: str, workers: int = 1) -> None:
        self.codes, self.language, self.workers = directory / self.file, language, workers
        self.detokenizer = sacremoses.MosesDetokenizer(lang=language)

    @classmethod
    def learn(cls, directory: Path, lines: Iterable[tuple[str, str]], settings: Prepare, workers: int) -> None:
        """Learns `vocabulary` merges from (language, line) pairs."""
        tokenizers: dict[str, sacremoses.MosesTokenizer] = {}

        def tokens() -> Iterator[str]:
            for language, line in lines:
                tokenizer = tokenizers.setdefault(language, sacremoses.MosesTokenizer(lang=language))
                yield str(tokenizer.tokenize(line, return_str=True))

        with open(directory / cls.file, "w", encoding="utf-8", newline="\n") as codes:
            learn_bpe.learn_bpe(tokens(), codes, settings.vocabulary)

    def encode(self, lines: Iterable[str]) -> Iterator[list[str]]:
        # Moses is slow and pure Python, so here processes are needed where SentencePiece has threads.
        with multiprocessing.Pool(self.workers, _start_worker, (self.codes, self.language)) as pool:
            for batch in batches(lines, BATCH * self.workers):
                yield from pool.imap(_encode_line, batch, chunksize=500)

    def decode(self, tokens: list[str]) -> str:
        text = " ".join(tokens).replace("@@ ", "").removesuffix("@@")
        return str(self.detokenizer.detokenize(text.split()))


class Words:
    """No subwords: a token is what stands between spaces."""

    file = ""

    def __init__(self, directory: Path, language: str, workers: int = 1) -> None:
        pass

    @classmethod
    def learn(cls, directory: Path, lines: Iterable[tuple[str, str]], settings: Prepare, workers: int) -> None:
        """There is nothing to learn."""

    def encode(self, lines: Iterable[str]) -> Iterator[list[str]]:
        return (line.split() for line in lines)

    def decode(self, tokens: list[str]) -> str:
        return " ".join(tokens)


METHODS: dict[str, type[SentencePiece] | type[SubwordNmt] | type[Words]] = {
    "sentencepiece": SentencePiece,
    "subword-nmt": SubwordNmt,
    "none": Words,
}


def batches(lines: Iterable[str], size: int = BATCH) -> Iterator[list[str]]:
    """Lists of at most `size` lines."""
    iterator = iter(lines)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


_worker: tuple[sacremoses.MosesTokenizer, apply_bpe.BPE]


def _start_worker(codes: Path, language: str) -> None:
    global _worker
    with open(codes, encoding="utf-8") as file:
        _worker = sacremoses.MosesTokenizer(lang=language), apply_bpe.BPE(file)


def _encode_line(line: str) -> list[str]:
    tokenizer, bpe = _worker
    return str(bpe.process_line(tokenizer.tokenize(line, return_str=True))).split()
