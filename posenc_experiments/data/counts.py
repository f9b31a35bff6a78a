"""Counts of what `prepare` dropped, cut or found empty, as numbers and as sentences."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

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
#: what is said of a validation or test set, of which no line is ever dropped, about lists of line numbers, from 1
NOTES = {
    "empty_source": "empty source lines (first {first:,}) get an empty translation",
    "empty_target": "empty target lines (first {first:,})",
    "cut": "pairs (first {first:,}) cut to {eval_max_tokens:,} tokens for the model",
    "other_form": "target lines (first {first:,}) have characters that the model never writes, a warning: set "
    "normalize = identity if the training text has them too, or else convert the references (docs/data.md)",
}


def said_of_training(counts: Counts, settings: Prepare, source: str) -> str:
    """The counts of training pairs as sentences; `source` is a language."""
    values = {**asdict(settings), **counts, "unit": unit(source)}
    said = [f"{counts['read']:,} pairs read, {counts['kept']:,} kept"]
    said += [f"{counts[name]:,} dropped {why.format(**values)}" for name, why in REASONS.items() if counts[name]]
    return "; ".join(said + ([f"{counts['joined']:,} joined with the pair before"] if counts["joined"] else []))


def said_of_test(facts: Mapping[str, Any], settings: Prepare) -> str:
    """The `lines` of a validation or test set, and the line numbers of each of NOTES, as sentences."""
    said = [f"{facts['lines']:,} pairs"]
    for name, note in NOTES.items():
        if numbers := facts[name]:
            said.append(f"{len(numbers):,} {note.format(first=numbers[0], **asdict(settings))}")
    return "; ".join(said)
