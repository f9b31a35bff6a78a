"""Sentences in fairseq's form: those of a text, some of the data, or random ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fairseq.data import data_utils
from torch import Tensor

from ..errors import ExportError, brief
from ..trained import Trained

#: minimum overlap of SentencePiece's subwords and the dictionary, as a fraction of the smaller of the two. We measured
#: over 0.99 for matching ones and at most 0.6 for another corpus. A dictionary may lack rare subwords, and a joint
#: model has subwords of the other language.
MIN_OVERLAP = 0.75


def subword_splitter(sentencepiece: Path | None, dictionary: Any) -> Callable[[str], list[str]]:
    """What segments a line with SentencePiece or, without a model, splits what is already segmented at spaces.

    Args:
        sentencepiece: the SentencePiece model.
        dictionary: fairseq's source dictionary.

    Raises:
        ExportError: the model cannot be read or did not segment the data, or SentencePiece is not installed.
    """
    if sentencepiece is None:
        return str.split
    try:
        from sentencepiece import SentencePieceProcessor

        processor = SentencePieceProcessor(model_file=str(sentencepiece))
    except ImportError:
        raise ExportError("SentencePiece is not installed: run pip install '.[export]' in the repository.") from None
    except (OSError, RuntimeError):
        raise ExportError(
            f"{sentencepiece} is not a SentencePiece model: name the one that segmented the data."
        ) from None
    special = (processor.is_unknown, processor.is_control, processor.is_unused, processor.is_byte)
    pieces = {processor.id_to_piece(n) for n in range(len(processor)) if not any(kind(n) for kind in special)}
    known = set(dictionary.symbols[dictionary.nspecial :])
    shared, smaller = len(pieces & known), min(len(pieces), len(known))
    if shared < MIN_OVERLAP * smaller:  # with such a model most subwords would be unknown
        raise ExportError(
            f"{sentencepiece} has only {shared:,} of {smaller:,} subwords in common with the source dictionary: name "
            "the SentencePiece model that segmented this training's data with --sentencepiece."
        )
    return partial(processor.encode, out_type=str)


def read_sentences(path: Path, trained: Trained, split: Callable[[str], list[str]]) -> list[Tensor]:
    """The source sentences of a text: one tensor of indices per line, (length,), int64, with </s>.

    Raises:
        ExportError: the text cannot be read, or a line is longer than the model's maximum length.
    """
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ExportError(f"{path} cannot be read ({brief(error)}): name a UTF-8 text, one sentence a line.") from None
    sentences = []
    for number, line in enumerate(lines, 1):
        tokens = map(trained.source.index, split(line))
        sentences.append(torch.tensor([*tokens, trained.source.eos()], dtype=torch.int64))
        if not trained.accepts(sentences[-1]):
            raise ExportError(
                f"{path}, line {number}: it has {len(sentences[-1])} tokens, and the model accepts "
                f"{trained.model.max_positions()[0]} at most: shorten or remove the line."
            )
    return sentences


def some_sentences(trained: Trained, count: int) -> tuple[list[Tensor], str]:
    """Sentences evenly spaced in the validation or test set, or random sentences if the data has no such set.

    Returns:
        the sentences, and a description of where they are from.

    Raises:
        ExportError: the data is damaged.
    """
    source, target = trained.task.cfg.source_lang, trained.task.cfg.target_lang
    for split in ("valid", "test"):
        path = trained.data / f"{split}.{source}-{target}.{source}"
        try:
            sentences = data_utils.load_indexed_dataset(str(path), trained.source)
            found = [sentence.long() for sentence in sentences or () if len(sentence) > 1 and trained.accepts(sentence)]
        except Exception:  # the type depends on where the file was truncated
            raise ExportError(
                f"{path}.bin or .idx is damaged: binarize the data again, or name a text to compare on with --sample."
            ) from None
        if found:
            return found[:: max(len(found) // count, 1)][:count], f"sentences of {path}"
    longest = trained.model.max_positions()[0] - 1
    lengths = [min(1 + number, longest) for number in range(count)]
    return [random_sentence(trained.source, length, length) for length in lengths], "random sentences"


def random_sentence(dictionary: Any, length: int, seed: int) -> Tensor:
    """A sentence of ``length`` random words and </s>."""
    rng = random.Random(seed)
    words = [rng.randrange(dictionary.nspecial, len(dictionary)) for _ in range(length)]
    return torch.tensor([*words, dictionary.eos()], dtype=torch.int64)
