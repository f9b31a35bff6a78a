"""The contents of a recipe as dataclasses, which say what values are allowed."""

import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from posenc_experiments.base.flags import Flags

#: methods of prepare.subwords
SUBWORDS = ("sentencepiece", "subword-nmt", "none")
#: SentencePiece's rules of prepare.normalize: NFKC with more spaces, NFKC, and none
NORMALIZATIONS = ("nmt_nfkc", "nfkc", "identity")
#: the flag for the interval between checkpoints of each generate.average-by
SAVE_INTERVAL = {"epochs": "save-interval", "updates": "save-interval-updates"}
#: the fairseq task whose search uses each generate.length-penalty; either task can use models trained with the other
GENERATION_TASKS = {"power": "translation", "wu": "translation_gnmt_penalty"}
#: the metrics of SacreBLEU that score.metrics adds to BLEU and chrF; evaluation/metrics.py makes them
METRICS = ("chrf++", "ter")
#: the neural metrics of score.neural; evaluation/scores/neural.py runs or reads them
NEURAL = ("comet", "metricx", "bleurt")
#: the kinds of score.tokenized, and the word for each in tables
TOKENIZED_KINDS = {"split": "historical", "lowercase": "lowercased"}


#: where each (section, key) was set: a file; None for --set; or the text that was given as --experiments
Origins = dict[tuple[str, str], Path | str | None]


class Fault(ValueError):
    """A value that is not allowed: its key, and what is wrong."""

    def __init__(self, key: str, problem: object) -> None:
        super().__init__(problem)
        self.key = key


def require(holds: object, key: str, problem: str) -> None:
    """Fault with this key and problem, unless the condition holds."""
    if not holds:
        raise Fault(key, problem)


def require_name(text: str, key: str = "name") -> None:
    """Fault unless the text may name a directory."""
    allowed = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text)
    require(allowed, key, f"'{text}' is not a name of letters, digits, '.', '_' and '-'")


def limited(default: Any, least: float | None = None, choices: Collection[object] = ()) -> Any:
    """A field whose value must be at least a number, or one of several values (or the default)."""
    return field(default=default, metadata={"least": least, "choices": choices})


@dataclass(frozen=True)
class Section:
    """A section of a recipe, whose values are within the limits of their fields."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value, key = getattr(self, one.name), one.name.replace("_", "-")
            least, choices = one.metadata.get("least"), one.metadata.get("choices")
            require(not isinstance(value, float) or math.isfinite(value), key, f"'{value}' is not a finite number")
            require(least is None or value >= least, key, f"'{value}' is not a number of at least {least}")
            allowed = not choices or value in choices or value == one.default
            require(allowed, key, f"'{value}' is not one of {', '.join(map(str, choices or ()))}")


def is_pair(pair: str) -> bool:
    """Whether a pair is two different languages, such as en-de."""
    source, _, target = pair.partition("-")
    return bool(source and target and source != target and "-" not in target)


@dataclass(frozen=True)
class Corpus(Section):
    """Where the text comes from: a table of sources, a generator with its options, or a directory of text."""

    name: str = MISSING
    pairs: list[str] = MISSING
    train: list[str] = MISSING
    valid: str = MISSING
    tests: list[str] = MISSING
    train_by_pair: dict[str, list[str]] = field(default_factory=dict)  # instead of `train`, for some pairs
    sources: Path | None = None
    archives: Path | None = None  # where the files named in `sources` are
    downloads: str = ""  # a directory under --data-dir; two recipes may share one
    generator: Path | None = None  # gets --source, if that is given: a directory with what it makes the text from
    generator_options: str = ""
    text: Path | None = None  # a directory of the user's own text: train.en, train.de...
    checksums: dict[str, str] = field(default_factory=dict)  # of the user's own text, by split

    def __post_init__(self) -> None:
        require_name(self.name)
        for key in ("pairs", "train", "tests"):
            require(getattr(self, key), key, "is empty: name at least one")
        for pair in self.pairs:
            require(is_pair(pair), "pairs", f"'{pair}' is not a pair of two languages such as en-de")
        known = {*self.pairs, *("-".join(reversed(pair.split("-"))) for pair in self.pairs)}
        for pair in self.train_by_pair:
            require(pair in known, "train-by-pair", f"'{pair}' is not one of the pairs, {', '.join(self.pairs)}")
        if self.sources is not None and self.archives is None:
            object.__setattr__(self, "archives", self.sources.with_name("archives.tsv"))
        object.__setattr__(self, "downloads", self.downloads or f"{self.name}/download")
        kinds = [kind for kind in (self.sources, self.generator, self.text) if kind is not None]
        require(len(kinds) == 1, "sources", "give one of 'sources', 'generator' and 'text'")
        for key in ("sources", "archives", "generator"):
            path = getattr(self, key)
            require(path is None or path.is_file(), key, f"there is no file {path}")
        # The download checks that `text` exists, because later steps may run on a machine without it.
        require(self.text is None or self.checksums, "text", "is set by `fairseq-posenc own`: call that")

    def train_splits(self, pair: str) -> list[str]:
        """The splits that a pair trains on, which are the same for the reverse pair."""
        source, target = pair.split("-")
        return self.train_by_pair.get(pair) or self.train_by_pair.get(f"{target}-{source}") or self.train


@dataclass(frozen=True)
class Prepare(Section):
    """How text becomes tokens."""

    subwords: str = limited("sentencepiece", choices=SUBWORDS)
    vocabulary: int = limited(32000, least=1)
    sample: int = limited(5_000_000, least=0)  # subwords are learnt from this many pairs, in memory; 0: from all
    joined_dictionary: bool = True
    min_tokens: int = limited(1, least=1)  # training pairs with a side of fewer tokens are dropped
    max_tokens: int = limited(250, least=1)  # training pairs with a side of more tokens are dropped
    max_ratio: float = 0.0  # training pairs with a larger ratio of tokens between the sides are dropped; 0: none are
    train_min_words: int = limited(0, least=0)  # training pairs with a shorter source are dropped, by languages.length
    train_max_words: int = limited(0, least=0)  # the same for a longer source; 0: none are
    drop_identical: bool = False  # drop training pairs of two equal sides
    #: validation and test sentences are cut to this; fairseq's models take up to 1,024
    eval_max_tokens: int = limited(1000, least=1)
    lowercase: bool = False  # lowercase all text of the model, on both sides, but not the references
    normalize: str = limited(NORMALIZATIONS[0], choices=NORMALIZATIONS)
    character_coverage: float = 1.0  # the rest of the text's characters, all rare, are unknown to SentencePiece
    #: 1: join each sentence with the one before it in its document, and score only the last
    context: int = limited(0, choices=(0, 1))
    normalize_punctuation: bool = False  # apply Moses' normalize-punctuation to the same text

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, default in (("normalize", NORMALIZATIONS[0]), ("character-coverage", 1.0)):
            unused = getattr(self, key.replace("-", "_")) != default and self.subwords != "sentencepiece"
            require(not unused, key, "needs 'subwords: sentencepiece', which reads it: leave it out")

    @property
    def changes(self) -> list[str]:
        """The keys of the changes that text goes through before it is split into subwords, in order."""
        changes = {"lowercase": self.lowercase, "normalize-punctuation": self.normalize_punctuation}
        return [name for name, wanted in changes.items() if wanted]


@dataclass(frozen=True)
class Model(Section):
    """What the model is."""

    size: str = MISSING
    setup: str | None = None  # part of the experiments' names, so that several recipes may share a corpus
    pairs: list[str] = field(default_factory=list)  # the corpus's pairs that it is for; by default all
    flags: Flags = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_name(self.setup or "none", "setup")


@dataclass(frozen=True)
class Train(Section):
    """How the model is trained."""

    batch_tokens: int = limited(0, least=0)  # --update-freq follows from it; 0: it does not
    flags: Flags = field(default_factory=dict)


@dataclass(frozen=True)
class Generate(Section):
    """Which checkpoints translate, and how."""

    average: int = limited(1, least=1)  # number of checkpoints that are averaged; 1: only the last is used
    #: average checkpoints of the last epochs, or of the last --save-interval-updates
    average_by: str = limited("epochs", choices=SAVE_INTERVAL)
    length_penalty: str = limited("power", choices=GENERATION_TASKS)  # fairseq's, or that of Wu et al. 2016, as papers
    flags: Flags = field(default_factory=dict)


@dataclass(frozen=True)
class Scoring(Section):
    """Scores beside SacreBLEU's BLEU and chrF against the reference."""

    testsets: dict[str, str] = field(default_factory=dict)  # SacreBLEU's names of the recipe's test sets
    #: also compute a tokenized BLEU, as papers report it: `split` is cased and splits compounds, `lowercase` does
    #: neither; empty: do not
    tokenized: str = limited("", choices=TOKENIZED_KINDS)
    metrics: list[str] = field(default_factory=list)  # of METRICS
    neural: dict[str, str] = field(default_factory=dict)  # the model of each of NEURAL
    tokenize: str | None = None  # SacreBLEU's tokenizer of BLEU; None: that of the target language

    def __post_init__(self) -> None:
        super().__post_init__()
        for metric in self.metrics:
            require(metric in METRICS, "metrics", f"'{metric}' is not one of {', '.join(METRICS)}")
        for metric, model in self.neural.items():
            require(metric in NEURAL, "neural", f"'{metric}' is not one of {', '.join(NEURAL)}")
            named = isinstance(model, str) and model.strip()
            require(named, "neural", f"'{metric}' needs the name of a model, as in neural: {{comet: wmt22-comet-da}}")
        if self.tokenize is not None:
            from sacrebleu.metrics.bleu import BLEU

            known = BLEU.TOKENIZERS
            require(self.tokenize in known, "tokenize", f"'{self.tokenize}' is not one of {', '.join(known)}")
        if self.testsets:
            from sacrebleu.dataset import DATASETS

            for name in self.testsets.values():
                problem = f"'{name}' is not a test set of SacreBLEU; `sacrebleu --list` names them all"
                require(name in DATASETS, "testsets", problem)


@dataclass(frozen=True)
class Recipe:
    """The contents of a recipe."""

    path: Path
    corpus: Corpus
    prepare: Prepare
    model: Model
    train: Train
    generate: Generate
    score: Scoring
    experiments: dict[str, list[str]]
    default_experiments: list[str]
    origins: Origins = field(default_factory=dict)

    @property
    def pairs(self) -> list[str]:
        """The pairs that it is for."""
        return self.model.pairs or self.corpus.pairs

    @property
    def overridden(self) -> Flags:
        """The values of `model` and `train` set by --set; like flags after --, they make a different experiment."""
        sections = {
            "model": {**self.model.flags, "size": self.model.size},
            "train": {**self.train.flags, "batch-tokens": str(self.train.batch_tokens)},
        }
        return {
            key: sections[section][key]
            for (section, key), origin in self.origins.items()
            if origin is None and key in sections.get(section, {})
        }

    def where(self, section: str, key: str) -> str:
        """The place where a value was set, for error messages."""
        return where_written(self.origins.get((section, key), self.path), section, key)


#: the sections of a recipe, but `experiments`
TYPES = {one.name: one.type for one in fields(Recipe) if isinstance(one.type, type) and issubclass(one.type, Section)}


def where_written(origin: Path | str | None, section: str, key: str) -> str:
    """The place where a value was set, from one of `Origins`."""
    if isinstance(origin, str):
        return f"--experiments '{origin}'"
    return f"--set {section}.{key}" if origin is None else f"{origin}, {section}.{key}"
