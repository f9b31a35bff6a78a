"""Counts of the pairs that each step dropped, as numbers and as sentences."""

from collections import Counter
from dataclasses import asdict, dataclass

from posenc_experiments.base.languages import unit
from posenc_experiments.base.recipe import Prepare

#: numbers of training pairs: `read`, `kept`, `joined` with the pair before (of those kept), and those dropped for each
#: of REASONS; and `first_bad_utf8`, a line number, from 1, over all files together
Counts = Counter[str]
#: why pairs are dropped, with the settings
REASONS = {
    "bad_utf8": "for bad UTF-8, first at line {first_bad_utf8:,}",
    "empty": "for an empty side",
    "identical": "for identical sides",
    "few_words": "for a source of fewer than {train_min_words} {unit}",
    "many_words": "for a source of more than {train_max_words} {unit}",
    "too_short": "as shorter than {min_tokens} tokens",
    "too_long": "as longer than {max_tokens} tokens",
    "odd_ratio": "for one side having more than {max_ratio:g} times the other's tokens",
}


def add(counts: Counts, batch: Counts) -> None:
    """Adds the counts of the next batch."""
    if first := batch.pop("first_bad_utf8", 0):
        counts.setdefault("first_bad_utf8", counts["read"] + first)
    counts.update(batch)


def sentences(counts: Counts, settings: Prepare, source: str) -> list[str]:
    """The counts as sentences; `source` is a language."""
    values = {**asdict(settings), **counts, "unit": unit(source)}
    said = [f"{counts['read']:,} pairs read, {counts['kept']:,} kept"]
    said += [f"{counts[name]:,} dropped {why.format(**values)}" for name, why in REASONS.items() if counts[name]]
    return said + ([f"{counts['joined']:,} joined with the pair before"] if counts["joined"] else [])


@dataclass
class EvalCounts:
    """Counts of a validation or test set, of which no line is ever dropped; lists hold line numbers, from 1."""

    lines: int
    empty_source: list[int]
    empty_target: list[int]
    cut: list[int]

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
        return said
