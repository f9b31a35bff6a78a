"""Sentences in fairseq's form: those of a text, some of the data, or random ones."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from sentencepiece import SentencePieceProcessor
from torch import Tensor

from ..errors import ExportError, brief
from ..trained import Trained

#: number of sentences of the data that both systems translate for the comparison
SENTENCES = 40


def sample_sentences(
    trained: Trained, sample: Path | None, subwords: SentencePieceProcessor | None
) -> tuple[list[Tensor], str]:
    """Source sentences to compare on, and a description of where they are from.

    They are the lines of ``sample`` or, if that is None, evenly spaced ones of the validation or test set, or random
    ones if the data has no such set.

    Args:
        subwords: the SentencePiece model that segments ``sample``; without one, its lines are segmented already.

    Returns:
        tensors of indices with </s>, (length,), int64; without empty lines, which CTranslate2 does not translate, and
        those that are longer than the model accepts.

    Raises:
        ExportError: the sample cannot be read, or no line is left.
    """
    if sample is not None:
        try:
            lines = sample.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ExportError(
                f"{sample} cannot be read ({brief(error)}): name a UTF-8 text with one sentence a line."
            ) from None
        split = str.split if subwords is None else subwords.encode_as_pieces
        encoded = (trained.source.encode_line(line, split, add_if_not_exist=False).long() for line in lines)
        if accepted := [sentence for sentence in encoded if len(sentence) > 1 and trained.accepts(sentence)]:
            return accepted, f"lines of {sample}"
        raise ExportError(f"{sample} has no line that the model accepts: name a text with one sentence per line.")
    for name in ("valid", "test"):
        with suppress(FileNotFoundError):
            trained.task.load_dataset(name)
            sentences = (sentence.long() for sentence in trained.task.dataset(name).src)
            accepted = [sentence for sentence in sentences if len(sentence) > 1 and trained.accepts(sentence)]
            if accepted:
                return accepted[:: max(len(accepted) // SENTENCES, 1)][
                    :SENTENCES
                ], f"sentences of {trained.data}, {name}"
    longest = trained.model.max_positions()[0] - 1
    lengths = [min(1 + number, longest) for number in range(SENTENCES)]
    return [random_sentence(trained.source, length, length) for length in lengths], "random sentences"


def random_sentence(dictionary: Any, length: int, seed: int) -> Tensor:
    """A sentence of ``length`` random words and </s>."""
    rng = random.Random(seed)
    words = [rng.randrange(dictionary.nspecial, len(dictionary)) for _ in range(length)]
    return torch.tensor([*words, dictionary.eos()], dtype=torch.int64)
