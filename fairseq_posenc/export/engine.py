"""Runs CTranslate2 and fairseq with the same search on sentences in fairseq's form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from ..errors import brief
from ..scoring import BATCH_TOKENS, source_batch
from ..trained import Trained
from .errors import ExportError
from .specification import BLANK

#: defaults of fairseq-generate: --beam, --lenpen (log P is divided by length^lenpen; the length includes </s>) and
#: --max-len-b
BEAM, LENPEN, LONGEST_OUTPUT = 5, 1.0, 200


def search_options(trained: Trained) -> dict[str, Any]:
    """Keyword arguments of ``translate_batch`` that reproduce fairseq-generate's search with this model.

    Like fairseq, the search outputs neither <pad> nor an empty translation. It does not truncate long sources, which
    fairseq refuses.
    """
    return {
        "beam_size": BEAM,
        "length_penalty": LENPEN,
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
        """Like :func:`fairseq_posenc.scoring.log_probabilities`, for targets that end in </s>."""
        texts = words(self.trained.source, sources), words(self.trained.target, targets)
        options = {"max_input_length": 0, "max_batch_size": BATCH_TOKENS, "batch_type": "tokens"}
        return [np.array(scored.log_probs) for scored in self.translator.score_batch(*texts, **options)]

    def translate(self, sources: Sequence[Tensor], **changes: Any) -> list[tuple[Tensor, float]]:
        """The best translation of each sentence, which ends in </s> unless it reached the maximum length, and its log P
        in the search; ``changes`` replace some of :func:`search_options`.
        """
        options = search_options(self.trained) | changes
        options |= {"max_batch_size": 32, "return_scores": True, "return_end_token": True}
        results = self.translator.translate_batch(words(self.trained.source, sources), **options)
        index, lenpen = self.trained.target.index, changes.get("length_penalty", LENPEN)
        found = []
        for result in results:
            tokens = torch.tensor([index(word) for word in result.hypotheses[0]])
            found.append((tokens, result.scores[0] * len(tokens) ** lenpen))
        return found


def words(dictionary: Any, sentences: Sequence[Tensor]) -> list[list[str]]:
    """The tokens as text without </s>, which CTranslate2 adds itself."""
    return [[dictionary[index] for index in sentence[:-1].tolist()] for sentence in sentences]


def fairseq_search(trained: Trained) -> Callable[[Sequence[Tensor]], list[Tensor]]:
    """Makes a function that translates one batch with fairseq, to the best translation of each sentence, with </s>."""
    generator = SequenceGenerator(
        [trained.model], trained.target, beam_size=BEAM, len_penalty=LENPEN, max_len_b=LONGEST_OUTPUT
    )

    def translate(sources: Sequence[Tensor]) -> list[Tensor]:
        finished = generator.generate([trained.model], {"net_input": source_batch(trained, sources)})
        return [hypotheses[0]["tokens"] for hypotheses in finished]

    return translate
