"""Converts between text and the subwords of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .errors import ExportError

#: minimum overlap of SentencePiece's subwords and the dictionary, as a fraction of the smaller of the two. We measured
#: over 0.99 for matching ones and at most 0.6 for another corpus. A dictionary may lack rare subwords, and a joint
#: model has subwords of the other language.
MIN_OVERLAP = 0.75


class Segmentation:
    """Segments text with SentencePiece or, without a model, splits text that is already segmented at spaces.

    Args:
        sentencepiece: the SentencePiece model.
        dictionary: fairseq's source dictionary.

    Raises:
        ExportError: the model cannot be read or does not match the dictionary, or SentencePiece is not installed.
    """

    def __init__(self, sentencepiece: Path | None, dictionary: Any) -> None:
        self._processor: Any = None
        if sentencepiece is not None:
            self._processor = _load(sentencepiece)
            _check(self._processor, sentencepiece, dictionary)

    def encode(self, line: str) -> list[str]:
        if self._processor is None:
            return line.split()
        return list(self._processor.encode(line, out_type=str))

    def decode(self, tokens: list[str]) -> str:
        text = " ".join(tokens) if self._processor is None else str(self._processor.decode(tokens))
        return " ".join(text.split())


def _load(path: Path) -> Any:
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        raise ExportError("SentencePiece is not installed: run pip install '.[export]' in the repository.") from None
    try:
        return SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError):
        raise ExportError(f"{path} is not a SentencePiece model: name the one that segmented the data.") from None


def _check(processor: Any, path: Path, dictionary: Any) -> None:
    """Refuses a SentencePiece model that did not segment the data, with which most subwords would be unknown.

    Raises:
        ExportError: it does not match the dictionary.
    """
    special = (processor.is_unknown, processor.is_control, processor.is_unused, processor.is_byte)
    pieces = {processor.id_to_piece(n) for n in range(len(processor)) if not any(kind(n) for kind in special)}
    known = set(dictionary.symbols[dictionary.nspecial :])
    shared, smaller = len(pieces & known), min(len(pieces), len(known))
    if shared < MIN_OVERLAP * smaller:
        raise ExportError(
            f"{path} has only {shared:,} of {smaller:,} subwords in common with the source dictionary: name the "
            "SentencePiece model that segmented this training's data with --sentencepiece."
        )
