"""Everything that a recipe's .conf says."""

from dataclasses import dataclass, field
from pathlib import Path

from posenc_experiments.base.flags import Flags


@dataclass(frozen=True)
class Corpus:
    """Where the text comes from: a table of sources, a generator with its options, or a directory of text."""

    name: str
    pairs: list[str]
    train: list[str]
    valid: str
    tests: list[str]
    train_by_pair: dict[str, list[str]] = field(default_factory=dict)  # instead of `train`, for some pairs
    sources: Path | None = None
    archives: Path | None = None  # where the files named in `sources` are
    counts: Path | None = None  # known numbers of pairs
    downloads: str = ""  # a directory under --data-dir; two recipes may share one
    generator: Path | None = None
    generator_options: list[str] = field(default_factory=list)
    text: Path | None = None  # somebody's own: train.en, train.de...

    def train_splits(self, pair: str) -> list[str]:
        """The splits that a pair trains on; the reverse pair has the same."""
        source, target = pair.split("-")
        for name in (pair, f"{target}-{source}"):
            if name in self.train_by_pair:
                return self.train_by_pair[name]
        return self.train


@dataclass(frozen=True)
class Prepare:
    """How text becomes tokens."""

    subwords: str = "sentencepiece"
    vocabulary: int = 32000
    sample: int = 5_000_000  # pairs from which subwords are learnt, in memory; 0: all
    joined_dictionary: bool = True
    min_tokens: int = 1  # a training sentence of fewer tokens is dropped
    max_tokens: int = 250  # and one of more
    max_ratio: float = 0.0  # a pair with so many times more tokens on one side is dropped; 0: none
    drop_identical: bool = False  # a pair whose sides are equal is dropped
    eval_max_tokens: int = 1000  # a longer validation or test sentence is cut, for fairseq's models end at 1,024
    lowercase: bool = False  # all that the model reads and learns to write; references stay as they came
    normalize_punctuation: bool = False  # the same for Moses' normalize-punctuation

    @property
    def changes(self) -> list[str]:
        """What is done to text before it is split into subwords, in this order, by its keys in the .conf."""
        changes = {"lowercase": self.lowercase, "normalize-punctuation": self.normalize_punctuation}
        return [name for name, wanted in changes.items() if wanted]


@dataclass(frozen=True)
class Scoring:
    """What is scored beside SacreBLEU's BLEU and chrF on the reference."""

    historical: bool = False  # a tokenized BLEU, as papers print it
    testsets: dict[str, str] = field(default_factory=dict)  # SacreBLEU's name of a test set
    tokenized: str = "split"  # which one: cased with German compounds split, or lowercased with compounds whole


@dataclass(frozen=True)
class Recipe:
    """Everything a .conf says."""

    path: Path
    corpus: Corpus
    prepare: Prepare
    size: str
    setup: str | None  # tells experiments of several .conf files on one corpus apart
    pairs: list[str]  # those of the corpus, unless the model is for some of them only
    model: Flags
    train: Flags
    batch_tokens: int | None
    generate: Flags
    average: int  # so many checkpoints as one; 1: the last alone
    average_by: str  # which ones: epochs or updates
    length_penalty: str  # power: fairseq's; wu: the papers'
    score: Scoring
    experiments: dict[str, list[str]]
    default_experiments: list[str]
    # Where each section and key was written: None is --set, text is what was typed as --experiments.
    origins: dict[tuple[str, str], Path | str | None] = field(default_factory=dict)

    @property
    def overridden(self) -> Flags:
        """What --set changes of the model and its training, which makes another experiment as flags behind -- do."""
        sections = {"model": {**self.model, "size": self.size}, "train": {**self.train}}
        if self.batch_tokens:
            sections["train"]["batch-tokens"] = str(self.batch_tokens)
        return {
            key: sections[section][key]
            for (section, key), origin in self.origins.items()
            if origin is None and key in sections.get(section, {})
        }

    def where(self, section: str, key: str) -> str:
        """Where a value was written, for an error."""
        return where_written(self.origins.get((section, key), self.path), section, key)


def where_written(origin: Path | str | None, section: str, key: str) -> str:
    if isinstance(origin, str):
        return f"--experiments '{origin}'"
    return f"--set {section}.{key}" if origin is None else f"{origin}, section [{section}], key '{key}'"
