"""Between text and the subwords of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .errors import ExportError

#: of the pieces or of the dictionary's words, whichever are fewer: these many are both, or the two do not belong
#: together (over 0.99 where they do, at most 0.6 for another corpus; rare pieces may lack in a dictionary, and a joint
#: model has pieces of the other language)
SHARED = 0.75


class Segmentation:
    """SentencePiece's subwords, or, without its model, the words of lines that are segmented already.

    Args:
        sentencepiece: its model.
        dictionary: fairseq's, of the source.

    Raises:
        ExportError: there is no such model, or no SentencePiece to read it; or it has other subwords.
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
        raise ExportError("SentencePiece is not installed: pip install 'fairseq_posenc[export]'.") from None
    try:
        return SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError):
        raise ExportError(f"{path} is no model of SentencePiece: name the one that segmented the data.") from None


def _check(processor: Any, path: Path, dictionary: Any) -> None:
    """Refuses a model that did not segment the data: most of its subwords would be unknown.

    Raises:
        ExportError: it did not.
    """
    special = (processor.is_unknown, processor.is_control, processor.is_unused, processor.is_byte)
    pieces = {processor.id_to_piece(n) for n in range(len(processor)) if not any(kind(n) for kind in special)}
    known = set(dictionary.symbols[dictionary.nspecial :])
    shared, fewer = len(pieces & known), min(len(pieces), len(known))
    if shared < SHARED * fewer:
        raise ExportError(
            f"{path} has {shared:,} subwords of the source dictionary, where {fewer:,} would fit in: name the "
            "SentencePiece model that segmented this training's data with --sentencepiece of export_ctranslate2.py."
        )
