"""Whether CTranslate2 does with an exported model what fairseq does with the checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..trained import Trained
from .engine import Engine
from .errors import ExportError
from .loading import random_sentence
from .scoring import Search, log_probabilities, translate

#: in nats; of a sentence's log P relative to it, where that is more than one nat
TOLERANCE = 1e-3
#: tokens of the random sentences, longer than those of most samples, so that far distances are compared too
LONG = 300


@dataclass(frozen=True)
class Verification:
    """How far CTranslate2 is from fairseq, both in single precision."""

    #: translated by both, and how many of the translations are the same
    sentences: int
    identical: int
    #: scored by both
    tokens: int
    #: largest difference of a given token's log-probability, in nats
    token: float
    #: largest difference of a sentence's log P, in nats or relative, whichever is less: fairseq's translations
    sentence: float
    #: the same of the score that CTranslate2's search, which computes token by token, gave to its own translations
    search: float

    @property
    def passed(self) -> bool:
        """Not so where a difference is no number."""
        return all(difference <= TOLERANCE for difference in (self.token, self.sentence, self.search))

    def __str__(self) -> str:
        return (
            f"{self.tokens:,} tokens' log-probabilities differ by at most {self.token:.1e}, log P of a sentence by "
            f"{self.sentence:.1e}, the search's scores by {self.search:.1e}; {self.identical:,} of {self.sentences:,} "
            "translations are the same"
        )


def verify(trained: Trained, engine: Engine, sources: Sequence[Tensor], search: Search) -> Verification:
    """Compares both on sentences, and on random ones that are long.

    The log-probabilities of one text show whether all that a model holds is in its place; the scores of CTranslate2's
    search, computed anew by fairseq, whether it is also read rightly token by token.
    """
    translations = translate(trained, search, sources)
    long_sources, long_targets = long_sentences(trained)
    all_sources, all_targets = [*sources, *long_sources], [*translations, *long_targets]
    ours = log_probabilities(trained, all_sources, all_targets)
    theirs = engine.log_probabilities(all_sources, all_targets)
    served = engine.translate(sources, search)
    # What may not come out is left out of CTranslate2's softmax, where fairseq keeps it: that is computed alike here.
    found = engine.translate(sources, search, min_decoding_length=0)
    pad, eos = trained.target.pad(), trained.target.eos()
    searched = [
        *_search_differences(trained, sources, found, search, [pad]),
        *_search_differences(
            trained, long_sources, _forced(engine, long_sources, long_targets), Search(1, 0), [pad, eos]
        ),
    ]
    return Verification(
        sentences=len(sources),
        identical=sum(
            # of the longest, CTranslate2's has no </s>
            one[one != eos].tolist() == other[other != eos].tolist()
            for one, (other, _) in zip(translations, served, strict=True)
        ),
        tokens=sum(map(len, ours)),
        token=_largest(np.abs(one - other).max() for one, other in zip(ours, theirs, strict=True)),
        sentence=_largest(_difference(one.sum(), other.sum()) for one, other in zip(ours, theirs, strict=True)),
        search=_largest(searched),
    )


def require(verification: Verification) -> None:
    """Raises ExportError unless both do the same."""
    if not verification.passed:
        raise ExportError(
            f"CTranslate2 does not do what fairseq does, so nothing was exported: {verification} (at most "
            f"{TOLERANCE:g} nats are allowed)."
        )


def long_sentences(trained: Trained) -> tuple[list[Tensor], list[Tensor]]:
    """Random sources and targets, one of each short, so that the other's batch is padded; within the model's limits."""
    longest = [min(LONG, limit - 1) for limit in trained.model.max_positions()]
    pairs = [
        [random_sentence(trained.source, min(length, longest[0]), seed=length) for length in (LONG, 7, LONG // 2)],
        [random_sentence(trained.target, min(length, longest[1]), seed=length + 1) for length in (LONG, LONG // 2, 5)],
    ]
    return pairs[0], pairs[1]


def _forced(engine: Engine, sources: list[Tensor], targets: list[Tensor]) -> list[tuple[Tensor, float]]:
    """A greedy search that is not let end before the longest length."""
    length = max(map(len, targets)) - 1
    return engine.translate(sources, Search(1, 0), min_decoding_length=length, max_decoding_length=length)


def _search_differences(
    trained: Trained,
    sources: Sequence[Tensor],
    found: Sequence[tuple[Tensor, float]],
    search: Search,
    suppressed: Sequence[int],
) -> list[float]:
    """Of the log P that the scores stand for from fairseq's, without the tokens that the search left out."""
    ours = log_probabilities(trained, sources, [tokens for tokens, _ in found], suppressed)
    theirs = [score * len(tokens) ** search.lenpen for tokens, score in found]
    return [_difference(one.sum(), other) for one, other in zip(ours, theirs, strict=True)]


def _difference(one: float, other: float) -> float:
    return float(abs(one - other) / max(1.0, abs(one)))


def _largest(differences: Iterable[float]) -> float:
    """NaN where one is NaN, which max() may pass over."""
    return float(np.max(np.array(list(differences), dtype=np.float64)))
