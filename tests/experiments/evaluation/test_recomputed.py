"""A second implementation of the differences and verdicts in results/, from the kept translations alone.

It shares no code with `posenc_experiments.evaluation`; of SacreBLEU it takes the tokenizer of 13a only.
"""

import csv
import gzip
import json
import re
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
from scipy import stats

ROOT = Path(__file__).resolve().parents[3]
TESTS = {
    "multi30k/en-de": ["test_2016_flickr", "test_2017_flickr", "test_2017_mscoco", "test_2018_flickr"],
    "kftt/ja-en": ["test"],
}
TEXTS = {"multi30k/en-de": "multi30k", "kftt/ja-en": "kyoto"}
LONGER = "longer half of the sources less the shorter"
MARGIN = 0.5


class Answer(NamedTuple):
    """A comparison as a file of results/ has it, or as it is computed here."""

    difference: float
    low: float
    high: float
    verdict: str
    verdict_low: float | None
    verdict_high: float | None


tokens = cache(Tokenizer13a())


def ngrams(line: str) -> list[Counter[tuple[str, ...]]]:
    words = tokens(line).split()
    return [Counter(zip(*(words[start:] for start in range(size)), strict=False)) for size in range(1, 5)]


def counts(translation: str, reference: list[Counter[tuple[str, ...]]]) -> list[int]:
    """The lengths of both, and for 1 to 4 words, how many n-grams match and how many there are."""
    own = ngrams(translation)
    matches = [(translated & wanted).total() for translated, wanted in zip(own, reference, strict=True)]
    return [own[0].total(), reference[0].total(), *matches, *(translated.total() for translated in own)]


def bleu(sums: NDArray[Any]) -> NDArray[Any]:
    """BLEU from sums of counts in the last axis; no sum of matches is zero here."""
    precisions = np.log(sums[..., 2:6] / sums[..., 6:10]).mean(axis=-1)
    return np.asarray(100 * np.exp(precisions + np.minimum(0, 1 - sums[..., 1] / sums[..., 0])))


class Corpus:
    """The references of a corpus, and the translations that results/ has of it."""

    def __init__(self, directory: str, shared: Path) -> None:
        self.directory, pair = directory, directory.split("/")[1].split("-")
        source, target = (self._read(shared / "data" / TEXTS[directory], side) for side in pair)
        self.references = [[ngrams(line) for line in lines] for lines in target]
        lines = [line for test in source for line in test]
        words = [len(re.sub(r"\s", "", line)) if pair[0] == "ja" else len(line.split()) for line in lines]
        self.longer = np.array(words) > np.median(words)
        names = (ROOT / "recipes/kftt/test.documents").read_text().splitlines() if "kftt" in directory else lines
        order = {name: number for number, name in enumerate(dict.fromkeys(names))}
        self.units = np.array([order[name] for name in names]) if "kftt" in directory else np.arange(len(lines))
        self.seeds: dict[str, dict[int, NDArray[Any]]] = {}

    def _read(self, folder: Path, side: str) -> list[list[str]]:
        paths = [folder / f"{test}.{side}.gz" for test in TESTS[self.directory]]
        return [gzip.decompress(path.read_bytes()).decode().splitlines() for path in paths]

    def counts_of(self, name: str) -> dict[int, NDArray[Any]]:
        """The counts of each sentence, for each seed of an experiment."""
        if name not in self.seeds:
            self.seeds[name] = dict(self._counts(name))
        return self.seeds[name]

    def _counts(self, name: str) -> Any:
        folders = [self.directory, f"multi30k-exchange/{self.directory}"]
        for path in [path for folder in folders for path in (ROOT / "results" / folder).glob("*.zip")]:
            with zipfile.ZipFile(path) as archive:
                for seed in sorted({entry.split("/")[0] for entry in archive.namelist()}):
                    if json.loads(archive.read(f"{seed}/experiment.json"))["name"] != name:
                        continue
                    sentences = []
                    for test, references in zip(TESTS[self.directory], self.references, strict=True):
                        lines = archive.read(f"{seed}/{test}.hyp").decode().removesuffix("\n").split("\n")
                        sentences += [counts(*pair) for pair in zip(lines, references, strict=True)]
                    yield int(seed.removeprefix("seed")), np.array(sentences)

    def scores(self, name: str, by_length: bool, seeds: set[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The score of each of these seeds, and the scores without each unit, of shape (seeds, units)."""
        halves = [self.longer, ~self.longer] if by_length else [np.ones(len(self.units), bool)]
        whole, without = [], []
        for seed in (counted for number, counted in self.counts_of(name).items() if number in seeds):
            parts = []
            for half in halves:
                by_unit = np.zeros((self.units[-1] + 1, 10))
                np.add.at(by_unit, self.units[half], seed[half])
                total = by_unit.sum(axis=0)
                parts.append((bleu(total), bleu(total - by_unit)))
            whole.append(parts[0][0] - (parts[1][0] if by_length else 0))
            without.append(parts[0][1] - (parts[1][1] if by_length else 0))
        return np.array(whole), np.array(without)

    def compare(self, name: str, baseline: str, comparisons: int, by_length: bool, seeds: set[int]) -> Answer:
        """Welch's test with the variance of the test set, as docs/scoring.md has it."""
        sides = [self.scores(side, by_length, seeds) for side in (name, baseline)]
        (own_scores, own_without), (baseline_scores, baseline_without) = sides
        units = own_without.shape[1]

        def jackknife(values: NDArray[Any]) -> float:
            return float((units - 1) / units * ((values - values.mean()) ** 2).sum())

        value = own_scores.mean() - baseline_scores.mean()
        difference_variance = jackknife(own_without.mean(axis=0) - baseline_without.mean(axis=0))
        terms, own = [], []
        for scores, without in sides:
            count = len(scores)
            pairs = [(left, right) for left in range(count) for right in range(left)]
            pair_variances = [jackknife(without[left] - without[right]) for left, right in pairs]
            terms.append((scores.var(ddof=1) / count, count - 1))
            own.append((float(np.mean(pair_variances)) / 2 / count, (count - 1) * (units - 1)))
        test_variance = max(0.0, difference_variance - sum(term for term, _ in own))
        variance = sum(term for term, _ in terms) + test_variance
        uncertain = [*terms, *own, (difference_variance, units - 1)]
        degrees = variance**2 / sum(term**2 / freedom for term, freedom in uncertain)
        degrees = max(degrees, min(units - 1, *(freedom for _, freedom in terms)))

        def interval(error: float) -> tuple[float, float]:
            half = stats.t.isf(error / 2, degrees) * variance**0.5
            return value - half, value + half

        def word(family: int) -> tuple[str, float | None, float | None]:
            (low, high), inner = interval(0.05 / family), interval(0.1 / family)
            if low > 0 or high < 0:
                return "above" if low > 0 else "below", low, high
            if inner[0] > -MARGIN and inner[1] < MARGIN:
                return "equivalent", *inner
            return "undecided", low, high

        said, low, high = word(comparisons) if comparisons else ("", None, None)
        if said == "undecided" and word(1)[0] != said:
            said = f"undecided (alone: {word(1)[0]})"
        return Answer(value, *interval(0.05), said, low, high)


def read(path: str) -> list[dict[str, str]]:
    return list(csv.DictReader((ROOT / "results" / path).read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("directory", TESTS)
def test_another_implementation_agrees(directory: str, shared: Path) -> None:
    """On all differences and verdicts of both corpora, on whole test sets and by length."""
    corpus = Corpus(directory, shared)
    sizes: dict[frozenset[str], int] = {}
    for question in yaml.safe_load((ROOT / "docs/questions.yaml").read_text(encoding="utf-8"))["questions"]:
        pairs = [(baseline, name) for baseline, names in question.get("comparisons", {}).items() for name in names]
        rows = [(table, *pair) for table in question.get("tables", []) for pair in pairs]
        sizes |= {frozenset(row): len(rows) for row in rows}
    files = ["questions.csv", "questions-later-seeds.csv"]
    files += [f"{directory}/{path.name}" for path in (ROOT / "results" / directory).glob("compare*.csv")]
    checked = 0
    for file, row in [(name, row) for name in files for row in read(name)]:
        if f"{row['corpus']}/{row['pair']}" != directory or row["test"] not in ("test", "all tests", LONGER):
            continue
        if not row["difference_low"] or "--" in row["experiment"]:  # one seed, or another directory
            continue
        table = " ".join((row["corpus"], row["pair"], row["test"]))
        comparisons = sizes.get(frozenset((table, row["experiment"], row["baseline"])), 0)
        seeds = {4, 5, 6} if "later" in file else set(range(1, 7))
        answer = corpus.compare(row["experiment"], row["baseline"], comparisons, row["test"] == LONGER, seeds)
        numbers = [float(row[key]) for key in ("difference", "difference_low", "difference_high")]
        assert answer[:3] == pytest.approx(numbers, abs=2e-3), row
        assert answer.verdict == row["verdict"], row
        if comparisons:
            ends = [float(row["verdict_low"]), float(row["verdict_high"])]
            assert [answer.verdict_low, answer.verdict_high] == pytest.approx(ends, abs=5e-3)
        checked += 1
    assert checked >= 25
