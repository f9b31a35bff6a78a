"""Verifies that CTranslate2 computes the same with an exported model as fairseq with the checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from ..errors import ExportError
from ..scoring import BATCH_TOKENS, batches, log_probabilities, source_batch
from ..trained import Trained
from .specification import BLANK
from .text import random_sentence

#: defaults of fairseq-generate: --beam, --lenpen (log P is divided by length^lenpen; the length includes </s>) and
#: --max-len-b
BEAM, LENPEN, LONGEST_OUTPUT = 5, 1.0, 200
#: maximum difference of a token's log-probability in nats, and relative difference of a search's score
TOLERANCE = 1e-3
#: number of tokens of the random sentences, longer than most samples, so that large distances are compared too
LONG = 300


@dataclass(frozen=True)
class Verification:
    """Differences between CTranslate2 and fairseq, both in single precision."""

    #: number of sentences that both have translated
    sentences: int
    #: number of identical translations
    identical: int
    #: number of tokens that both have scored
    tokens: int
    #: largest difference of a token's log-probability, in nats
    token: float
    #: largest relative difference of log P of CTranslate2's own long outputs from the scores of its search, which
    #: decodes incrementally
    search: float

    def __str__(self) -> str:
        return (
            f"{self.tokens:,} tokens' log-probabilities differ by at most {self.token:.1e}, the search's scores by "
            f"{self.search:.1e}; {self.identical:,} of {self.sentences:,} translations are the same"
        )


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
    """A model directory, loaded by CTranslate2 on the CPU."""

    def __init__(self, directory: str | Path, trained: Trained) -> None:
        self.trained = trained
        threads = torch.get_num_threads()
        self.translator = ctranslate2.Translator(
            str(directory), device="cpu", compute_type="float32", inter_threads=1, intra_threads=threads
        )

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
        translations = []
        for result in results:
            tokens = torch.tensor([self.trained.target.index(word) for word in result.hypotheses[0]])
            translations.append((tokens, result.scores[0] * len(tokens) ** options["length_penalty"]))
        return translations


def words(dictionary: Any, sentences: Sequence[Tensor]) -> list[list[str]]:
    """The tokens as text without </s>, which CTranslate2 adds itself."""
    return [[dictionary[index] for index in sentence[:-1].tolist()] for sentence in sentences]


def translate_with_fairseq(trained: Trained, sources: Sequence[Tensor]) -> list[Tensor]:
    """fairseq's best translation of each sentence, with </s>."""
    search = {"beam_size": BEAM, "len_penalty": LENPEN, "max_len_b": LONGEST_OUTPUT}
    generator = SequenceGenerator([trained.model], trained.target, **search)
    hypotheses: dict[int, Tensor] = {}
    for numbers in batches(sources):
        batch = source_batch(trained, [sources[number] for number in numbers])
        finished = generator.generate([trained.model], {"net_input": batch})
        hypotheses.update((number, one[0]["tokens"]) for number, one in zip(numbers, finished, strict=True))
    return [hypotheses[number] for number in range(len(sources))]


def verify(trained: Trained, engine: Engine, sources: Sequence[Tensor]) -> Verification:
    """Compares both systems on the sentences, and on long random sentences.

    The log-probabilities of a given text verify the parameters. The scores of CTranslate2's search, compared with
    fairseq's scores of the same translations, verify its incremental decoding.

    Raises:
        ExportError: they differ by more than the tolerance, or a difference is NaN.
    """
    translations = translate_with_fairseq(trained, sources)
    longest = [min(LONG, limit - 1) for limit in trained.model.max_positions()]
    # Their lengths differ, so batches are padded.
    lengths = [(LONG, LONG), (7, LONG // 2), (LONG // 2, 5)]
    long_sources = [random_sentence(trained.source, min(length, longest[0]), seed=length) for length, _ in lengths]
    long_targets = [random_sentence(trained.target, min(length, longest[1]), seed=length + 1) for _, length in lengths]
    all_sources, all_targets = [*sources, *long_sources], [*translations, *long_targets]
    ours = np.concatenate(log_probabilities(trained, all_sources, all_targets))
    theirs = np.concatenate(engine.log_probabilities(all_sources, all_targets))
    # CTranslate2 removes the tokens that a search may not output from its softmax, fairseq keeps them. For this
    # comparison both remove the same tokens: <pad>, and </s>, so that the outputs are long.
    pad, eos, length = trained.target.pad(), trained.target.eos(), longest[1]
    greedy = {"beam_size": 1, "length_penalty": 0, "min_decoding_length": length, "max_decoding_length": length}
    long_translations = engine.translate(long_sources, **greedy)
    scores = log_probabilities(trained, long_sources, [tokens for tokens, _ in long_translations], [pad, eos])
    searched = [abs(one.sum() / score - 1) for one, (_, score) in zip(scores, long_translations, strict=True)]
    served = [tokens for tokens, _ in engine.translate(sources)]
    # CTranslate2 adds no </s> to a translation of the maximum length.
    without_eos = [[tokens[tokens != eos].tolist() for tokens in both] for both in (translations, served)]
    verification = Verification(
        sentences=len(sources),
        identical=sum(one == other for one, other in zip(*without_eos, strict=True)),
        tokens=len(ours),
        token=float(np.abs(ours - theirs).max()),
        search=float(np.max(searched)),  # NaN if one of the differences is, which Python's max() may ignore
    )
    if not (verification.token <= TOLERANCE and verification.search <= TOLERANCE):
        raise ExportError(
            f"CTranslate2 and fairseq differ by more than {TOLERANCE:g}, so nothing was exported: {verification}."
        )
    return verification
