"""BLEU of a test set's sentences whose source has a given length, in words or, for some languages, characters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from posenc_experiments.base.languages import length
from posenc_experiments.evaluation.metrics import BLEU, sacrebleu_metric
from posenc_experiments.evaluation.pooling import Pooled
from posenc_experiments.evaluation.results import Score, read_test_texts
from posenc_experiments.evaluation.significance import resample_lines


@dataclass(frozen=True)
class WordRange:
    """A range of numbers of words."""

    first: int
    last: int | None  # None: any number from `first` on

    def __contains__(self, number: int) -> bool:
        return self.first <= number and (self.last is None or number <= self.last)

    def __str__(self) -> str:
        return f"{self.first}-{'' if self.last is None else self.last}"


def parse_word_range(text: str) -> WordRange:
    """Reads `1-14` or `15-`; ValueError if it is neither."""
    found = re.fullmatch(r"(\d+)-(\d*)", text)
    if not found or (found[2] and int(found[1]) > int(found[2])):
        raise ValueError(f"'{text}' is not a range of source words; write one such as 1-14, or 15- for all from 15 on")
    return WordRange(int(found[1]), int(found[2]) if found[2] else None)


@dataclass(frozen=True)
class Bucket:
    """The sentences of a test set whose source has a number of words in a range."""

    sentences: int
    bleu: Pooled | None  # over the seeds; None if there is no such sentence


def score_buckets(scores: Sequence[Score], ranges: Iterable[WordRange]) -> dict[str, Bucket]:
    """Scores the sentences of each range as the whole test set was scored.

    Args:
        scores: those of the seeds of one setting.

    Returns:
        the bucket of each range, by the range as text.

    Raises:
        RecipeError: a file is missing, or those of a test set have different numbers of lines.
    """
    texts = [list(zip(*read_test_texts(score), strict=True)) for score in scores]
    return {str(words): _score_bucket(scores, texts, words) for words in ranges}


def _score_bucket(scores: Sequence[Score], texts: Sequence[list[tuple[str, str, str]]], words: WordRange) -> Bucket:
    results = []
    for score, lines in zip(scores, texts, strict=True):
        inside = [line for line in lines if length(line[0], score.source_language) in words]
        if not inside:
            return Bucket(0, None)
        _, references, hypotheses = zip(*inside, strict=True)
        metric = sacrebleu_metric(BLEU, score.bleu.signature)
        results.append(resample_lines(metric, hypotheses, references))
    interval = results[0].interval if len(results) == 1 else None
    return Bucket(len(inside), Pooled.of([result.score for result in results], interval))
