"""Runs CTranslate2 on sentences in fairseq's form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import torch
from torch import Tensor

from ..errors import brief
from ..scoring import pair_batches
from ..trained import Trained
from .errors import ExportError
from .search import LONGEST_OUTPUT, Search
from .specification import BLANK


def search_options(trained: Trained, search: Search) -> dict[str, Any]:
    """Keyword arguments of ``translate_batch`` that reproduce fairseq-generate's search with this model.

    Like fairseq, the search outputs neither <pad> nor an empty translation. It does not truncate long sources, which
    fairseq refuses.
    """
    return {
        "beam_size": search.beam,
        "length_penalty": search.lenpen,
        "max_decoding_length": min(LONGEST_OUTPUT, trained.model.max_positions()[1] - 1),
        "min_decoding_length": 1,
        "max_input_length": 0,
        "suppress_sequences": [[BLANK]],
    }


class Engine:
    """A loaded model directory.

    Raises:
        ExportError: CTranslate2 cannot load it.
    """

    def __init__(self, directory: Path, trained: Trained, compute_type: str = "float32", threads: int = 0) -> None:
        self.trained = trained
        try:
            self.translator = ctranslate2.Translator(
                str(directory),
                device="cpu",
                compute_type=compute_type,
                inter_threads=1,
                intra_threads=threads or torch.get_num_threads(),
            )
        except (RuntimeError, ValueError) as error:
            raise ExportError(
                f"CTranslate2 cannot load {directory} ({brief(error)}): export the checkpoint again."
            ) from None

    def log_probabilities(self, sources: Sequence[Tensor], targets: Sequence[Tensor]) -> list[np.ndarray]:
        """Like :func:`fairseq_posenc.scoring.log_probabilities`, for targets that end in </s>, which CTranslate2 itself
        adds.
        """
        source_words, target_words = self.tokens(sources), words(self.trained.target, targets)
        found: dict[int, np.ndarray] = {}
        for numbers in pair_batches(sources, targets):
            chosen = [[both[number] for number in numbers] for both in (source_words, target_words)]
            scored = self.translator.score_batch(*chosen, max_input_length=0)
            found.update((number, np.array(one.log_probs)) for number, one in zip(numbers, scored, strict=True))
        return [found[number] for number in range(len(targets))]

    def tokens(self, sources: Sequence[Tensor]) -> list[list[str]]:
        """The source tokens as text, as CTranslate2 takes them."""
        return words(self.trained.source, sources)

    def translate(self, sources: Sequence[Tensor], search: Search, **others: Any) -> list[tuple[Tensor, float]]:
        """Translates sentences.

        Returns:
            for each sentence the best translation, which ends in </s> unless it reached the maximum length, and its
            score log P / length^lenpen.
        """
        options = search_options(self.trained, search) | others
        results = self.translator.translate_batch(
            self.tokens(sources), max_batch_size=32, return_scores=True, return_end_token=True, **options
        )
        index = self.trained.target.index
        return [(torch.tensor([index(word) for word in r.hypotheses[0]]), r.scores[0]) for r in results]


def words(dictionary: Any, sentences: Sequence[Tensor]) -> list[list[str]]:
    """The tokens as text without </s>, which CTranslate2 adds itself."""
    return [[dictionary[index] for index in sentence[:-1].tolist()] for sentence in sentences]
