"""Counts of the pairs that each step dropped, as numbers and as sentences."""

from dataclasses import asdict, dataclass, field
from itertools import accumulate

from posenc_experiments.base.languages import unit
from posenc_experiments.base.recipe import Prepare
from posenc_experiments.data.sources import STEPS, Known


@dataclass
class TrainCounts:
    """Counts of training pairs: those read, those dropped for each reason, and those kept."""

    read: int = 0
    bad_utf8: int = 0
    first_bad_utf8: int | None = None  # line number, from 1, over all files together
    empty: int = 0
    identical: int = 0
    few_words: int = 0
    many_words: int = 0
    too_short: int = 0
    too_long: int = 0
    odd_ratio: int = 0
    odd_separators: int = 0
    kept: int = 0
    joined: int = 0  # of those kept, with the sentence before

    def add(self, other: "TrainCounts") -> None:
        """Adds the counts of the next batch."""
        if self.first_bad_utf8 is None and other.first_bad_utf8 is not None:
            self.first_bad_utf8 = self.read + other.first_bad_utf8
        for name, value in asdict(other).items():
            if name != "first_bad_utf8":
                setattr(self, name, getattr(self, name) + value)

    def after_steps(self) -> dict[str, int]:
        """The pairs left after each of STEPS, in order."""
        length = self.few_words + self.many_words + self.too_short + self.too_long
        dropped = (0, self.bad_utf8, self.empty, self.identical, length, self.odd_ratio)
        return {step: self.read - lost for step, lost in zip(STEPS, accumulate(dropped), strict=True)}

    def sentences(self, settings: Prepare, source: str) -> list[str]:
        """The counts as sentences; `source` is a language."""
        said = [f"{self.read:,} pairs read, {self.kept:,} kept"]
        if self.bad_utf8:
            said.append(f"{self.bad_utf8:,} dropped for bad UTF-8, first at line {self.first_bad_utf8:,}")
        dropped = {
            "for an empty side": self.empty,
            "for identical sides": self.identical,
            f"for a source of fewer than {settings.train_min_words} {unit(source)}": self.few_words,
            f"for a source of more than {settings.train_max_words} {unit(source)}": self.many_words,
            f"as shorter than {settings.min_tokens} tokens": self.too_short,
            f"as longer than {settings.max_tokens} tokens": self.too_long,
            f"for one side having more than {settings.max_ratio:g} times the other's tokens": self.odd_ratio,
        }
        said += [f"{count:,} dropped {why}" for why, count in dropped.items() if count]
        if self.odd_separators:
            said.append(f"{self.odd_separators:,} had odd line separators, read as spaces")
        if self.joined:
            said.append(f"{self.joined:,} joined with the pair before")
        return said


@dataclass
class EvalCounts:
    """Counts of a validation or test set, of which no line is ever dropped; lists hold line numbers, from 1."""

    lines: int = 0
    empty_source: list[int] = field(default_factory=list)
    empty_target: list[int] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    odd_separators: int = 0

    def sentences(self, max_tokens: int) -> list[str]:
        """The counts as sentences."""
        said = [f"{self.lines:,} pairs"]
        if self.empty_source:
            said.append(
                f"{len(self.empty_source):,} empty source lines (first {self.empty_source[0]:,}) get an "
                f"empty translation"
            )
        if self.empty_target:
            said.append(f"{len(self.empty_target):,} empty target lines (first {self.empty_target[0]:,})")
        if self.cut:
            said.append(f"{len(self.cut):,} pairs (first {self.cut[0]:,}) cut to {max_tokens:,} tokens for the model")
        if self.odd_separators:
            said.append(f"{self.odd_separators:,} had odd line separators, read as spaces")
        return said


def compare(what: str, found: int, known: int, evidence: str) -> str:
    """A sentence that says whether a count is the known one; it is always printed, as training accepts lost lines.

    Args:
        what: the part of the corpus.
        found: its pairs here.
        known: its pairs according to `evidence`.
        evidence: the source of the known count.
    """
    if found == known:
        return f"{what}: {found:,} pairs, as known ({evidence})"
    return f"warning: {what}: {found:,} pairs here, but {known:,} are known ({evidence}); {found - known:+,}"


def compare_known(left: dict[str, int], known: list[Known]) -> list[str]:
    """Sentences that compare the result of `after_steps` with the recipe's table of counts."""
    return [compare(f"after '{row.step}'", left[row.step], row.pairs, row.evidence) for row in known]
