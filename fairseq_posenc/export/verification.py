"""Verifies that CTranslate2 computes the same with an exported model as fairseq with the checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..scoring import batches, log_probabilities
from ..trained import Trained
from .engine import Engine, fairseq_search
from .errors import ExportError
from .text import random_sentence

#: maximum difference in nats; relative for a sentence with |log P| > 1 nat
TOLERANCE = 1e-3
#: number of tokens of the random sentences, longer than most samples, so that large distances are compared too
LONG = 300
#: source tokens of a batch
BATCH_TOKENS = 4000


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
    #: largest difference of a sentence's log P, for fairseq's translations, in nats or relative, whichever is less
    sentence: float
    #: the same for CTranslate2's own translations and the scores of its search, which decodes incrementally
    search: float

    def require(self) -> None:
        """Requires that all differences are within the tolerance.

        Raises:
            ExportError: one is not, or is NaN.
        """
        if not all(difference <= TOLERANCE for difference in (self.token, self.sentence, self.search)):
            raise ExportError(
                f"CTranslate2 and fairseq differ, so nothing was exported: {self} (at most {TOLERANCE:g} nats are "
                "allowed)."
            )

    def __str__(self) -> str:
        return (
            f"{self.tokens:,} tokens' log-probabilities differ by at most {self.token:.1e}, log P of a sentence by "
            f"{self.sentence:.1e}, the search's scores by {self.search:.1e}; {self.identical:,} of {self.sentences:,} "
            "translations are the same"
        )


def verify(trained: Trained, engine: Engine, sources: Sequence[Tensor]) -> Verification:
    """Compares both systems on the sentences, and on long random sentences.

    The log-probabilities of a given text verify the parameters. The scores of CTranslate2's search, compared with
    fairseq's scores of the same translations, verify its incremental decoding.
    """
    translate = fairseq_search(trained)
    translated: dict[int, Tensor] = {}
    for numbers in batches(sources, BATCH_TOKENS):
        translated.update(zip(numbers, translate([sources[number] for number in numbers]), strict=True))
    translations = [translated[number] for number in range(len(sources))]
    longest = [min(LONG, limit - 1) for limit in trained.model.max_positions()]
    # Their lengths differ, so batches are padded.
    of_source, of_target = (LONG, 7, LONG // 2), (LONG, LONG // 2, 5)
    long_sources = [random_sentence(trained.source, min(length, longest[0]), seed=length) for length in of_source]
    long_targets = [random_sentence(trained.target, min(length, longest[1]), seed=length + 1) for length in of_target]
    all_sources, all_targets = [*sources, *long_sources], [*translations, *long_targets]
    ours = log_probabilities(trained, all_sources, all_targets)
    theirs = engine.log_probabilities(all_sources, all_targets)
    pad, eos = trained.target.pad(), trained.target.eos()
    length = max(map(len, long_targets)) - 1
    # CTranslate2 removes the tokens that a search may not output from its softmax, fairseq keeps them. For this
    # comparison both remove the same tokens: here also </s>, so that the outputs are long.
    greedy = {"beam_size": 1, "length_penalty": 0, "min_decoding_length": length, "max_decoding_length": length}
    searches = ((sources, {"min_decoding_length": 0}, [pad]), (long_sources, greedy, [pad, eos]))
    searched = []
    for searched_sources, options, suppressed in searches:
        found = engine.translate(searched_sources, **options)
        scores = log_probabilities(trained, searched_sources, [tokens for tokens, _ in found], suppressed)
        searched += [_difference(one.sum(), score) for one, (_, score) in zip(scores, found, strict=True)]
    served = engine.translate(sources)
    return Verification(
        sentences=len(sources),
        identical=sum(
            # CTranslate2 adds no </s> to a translation of the maximum length
            one[one != eos].tolist() == other[other != eos].tolist()
            for one, (other, _) in zip(translations, served, strict=True)
        ),
        tokens=sum(map(len, ours)),
        token=_largest(np.abs(one - other).max() for one, other in zip(ours, theirs, strict=True)),
        sentence=_largest(_difference(one.sum(), other.sum()) for one, other in zip(ours, theirs, strict=True)),
        search=_largest(searched),
    )


def _difference(one: float, other: float) -> float:
    return float(abs(one - other) / max(1.0, abs(one)))


def _largest(differences: Iterable[float]) -> float:
    """The maximum; NaN if one of the differences is NaN, which max() may ignore."""
    return float(np.max(list(differences)))
