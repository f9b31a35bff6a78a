"""Analyses of texts beside naive computations."""

from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics import bleu, chrf

from posenc_experiments.analysis import systems, texts
from posenc_experiments.analysis.ribes import ribes
from posenc_experiments.analysis.texts import Texts, buckets, by_length
from tests.experiments.analysis.quickstart import corpus, kept


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.fixture(scope="module")
def real() -> list[Texts]:
    """Two systems on the quickstart's test set."""
    names = ("transformer_sinusoidal_tiny", "transformer_shaw_tiny-clipping-distance-2")
    source, reference = (lines(corpus() / f"test.{side}") for side in ("xa", "xb"))
    return [Texts(source, reference, lines(kept() / name / "seed1" / "test.hyp")) for name in names]


# What NLTK 3.10.4's sentence_ribes says.
@pytest.mark.parametrize(
    ("hypothesis", "reference", "wanted"),
    [
        ("the cat sat on the mat", "the cat sat on the mat", 1.0),
        ("on the mat the cat sat", "the cat sat on the mat", 0.4),
        ("a b", "a b c d", 0.904837418036),
        ("c b a", "a b c", 0.0),
        ("a", "a", 1.0),
        ("the the dog", "the dog the", 0.90360200361),
    ],
)
def test_ribes_is_that_of_nltk(hypothesis: str, reference: str, wanted: float) -> None:
    assert ribes(hypothesis.split(), reference.split()) == pytest.approx(wanted)


def test_buckets_hold_every_sentence_once() -> None:
    chance = np.random.default_rng(1)
    for size, most in ((1, 1), (7, 3), (500, 40), (500, 2)):
        lengths = chance.integers(0, most + 1, size)
        ranges = buckets(lengths)
        assert [sum(first <= length <= last for first, last in ranges) for length in lengths] == [1] * size
        assert (ranges[0][0], ranges[-1][1]) == (lengths.min(), lengths.max())
        for boundary in range(-1, most + 2):
            parted = buckets(lengths, boundary)
            assert [sum(first <= length <= last for first, last in parted) for length in lengths] == [1] * size
            assert all(any(first <= length <= last for length in lengths) for first, last in parted)
            assert not any(first <= boundary < last for first, last in parted)
            if boundary in (last for _, last in ranges):
                assert parted == ranges


def test_scores_of_a_bucket_are_sacrebleus_of_its_sentences(real: list[Texts]) -> None:
    text = real[0]
    by_words = by_length(text, 18)
    assert sum(bucket["sentences"] for bucket in by_words) == 500
    for bucket in (by_words[0], by_words[-1]):
        inside = [
            number for number, line in enumerate(text.sources) if bucket["from"] <= len(line.split()) <= bucket["to"]
        ]
        hypotheses, references = ([side[number] for number in inside] for side in (text.hypotheses, text.references))
        assert bucket["BLEU"][0] == pytest.approx(bleu.BLEU().corpus_score(hypotheses, [references]).score)
        assert bucket["chrF"][0] == pytest.approx(chrf.CHRF().corpus_score(hypotheses, [references]).score)
        words = [[len(line.split()) for line in side] for side in (hypotheses, references)]
        assert bucket["length ratio"][0] == pytest.approx(sum(words[0]) / sum(words[1]))
        ribes_of_each = [ribes(h.split(), r.split()) for h, r in zip(hypotheses, references, strict=True)]
        assert bucket["RIBES"][0] == pytest.approx(100 * sum(ribes_of_each) / len(inside))
        assert bucket["longer"] == sum(len(text.sources[number].split()) > 18 for number in inside)
        for metric in texts.METRICS:
            score, low, high = bucket[metric]
            assert low <= score <= high


def test_sentences_that_differ_are_those_of_the_largest_difference(real: list[Texts]) -> None:
    comparison = systems.compare_systems(real)
    scores = [
        [chrf.CHRF().sentence_score(h, [r]).score for h, r in zip(text.hypotheses, text.references, strict=True)]
        for text in real
    ]
    difference = [first - second for first, second in zip(*scores, strict=True)]
    best, worst = (comparison["pairs"][pair]["sentences"] for pair in ("0 1", "1 0"))
    assert [difference[number] for number in best] == pytest.approx(sorted(difference, reverse=True)[:5])
    assert [difference[number] for number in worst] == pytest.approx(sorted(difference)[:5])
    assert set(comparison["sentences"]) == {str(number) for number in (*best, *worst)}
    shown = comparison["sentences"][str(best[0])]
    assert shown["reference"] == real[0].references[best[0]]
    assert shown["systems"] == [
        [text.hypotheses[best[0]], round(side[best[0]], 1)] for text, side in zip(real, scores, strict=True)
    ]
    for words, *counts in comparison["pairs"]["0 1"]["ngrams"]:
        assert counts == [
            sum(correct(words, *two) for two in zip(text.hypotheses, text.references, strict=True)) for text in real
        ]
        assert counts[0] > counts[1]


def correct(ngram: str, hypothesis: str, reference: str) -> int:
    size = len(ngram.split())
    sides = [line.split() for line in (hypothesis, reference)]
    return min(sum(" ".join(side[at : at + size]) == ngram for at in range(len(side))) for side in sides)
