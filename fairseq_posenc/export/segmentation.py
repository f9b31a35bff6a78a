"""Between text and the subwords of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .errors import ExportError


class Segmentation:
    """SentencePiece's subwords, or, without its model, the words of lines that are segmented already.

    Raises:
        ExportError: there is no such model, or no SentencePiece to read it.
    """

    def __init__(self, sentencepiece: Path | None) -> None:
        self._processor: Any = None if sentencepiece is None else _load(sentencepiece)

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
