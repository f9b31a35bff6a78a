"""The contents of a recipe as dataclasses, which say what values are allowed."""

import re
from dataclasses import dataclass, field
from pathlib import Path

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
#: the metrics of SacreBLEU that score.metrics adds to BLEU and chrF; evaluation/score.py makes them
METRICS = ("chrf++", "ter")
#: the kinds of score.tokenized, and the word for each in tables
TOKENIZED_KINDS = {"split": "historical", "lowercase": "lowercased"}


class Fault(ValueError):
    """A value that is not allowed: its key, and what is wrong."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


def require(holds: bool, key: str, problem: str) -> None:
    """Fault with this key and problem, unless the condition holds."""
    if not holds:
        raise Fault(key, problem)


def require_name(text: str, key: str = "name") -> None:
    """Fault unless the text may name a directory."""
    allowed = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text)
    require(bool(allowed), key, f"'{text}' is not a name of letters, digits, '.', '_' and '-'")


def _require_pairs(pairs: list[str]) -> None:
    for pair in pairs:
        languages = pair.split("-")
        good = len(languages) == 2 and all(languages) and languages[0] != languages[1]
        require(good, "pairs", f"'{pair}' is not a pair of two languages such as en-de")


def _require_one_of(section: object, key: str, choices: tuple[str, ...]) -> None:
    value = getattr(section, key.replace("-", "_"))
    require(value in choices, key, f"'{value}' is not one of {', '.join(choices)}")


@dataclass(frozen=True)
class Corpus:
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
    generator: Path | None = None
    generator_options: str = ""
    takes_source: bool = False  # the generator has an option --source DIR, a directory with what it makes the text from
    text: Path | None = None  # a directory of the user's own text: train.en, train.de...
    checksums: dict[str, str] = field(default_factory=dict)  # of the user's own text, by split

    def __post_init__(self) -> None:
        require_name(self.name)
        for key in ("pairs", "train", "tests"):
            values = getattr(self, key)
            once = values and len(set(values)) == len(values)
            require(once, key, f"'{' '.join(values)}' must name at least one, and each once")
        _require_pairs(self.pairs)
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
        require(self.text is None or bool(self.checksums), "text", "is set by `fairseq-posenc own`: call that")
        # The download checks that `text` exists, because later steps may run on a machine without it.
        good = all(re.fullmatch(r"[\w.-]+", one) and one not in (".", "..") for one in self.downloads.split("/"))
        problem = f"'{self.downloads}' is not the name of a directory under --data-dir, such as wmt/download"
        require(good, "downloads", problem)

    def train_splits(self, pair: str) -> list[str]:
        """The splits that a pair trains on, which are the same for the reverse pair."""
        source, target = pair.split("-")
        return self.train_by_pair.get(pair) or self.train_by_pair.get(f"{target}-{source}") or self.train


@dataclass(frozen=True)
class Prepare:
    """How text becomes tokens."""

    subwords: str = "sentencepiece"
    vocabulary: int = 32000
    sample: int = 5_000_000  # subwords are learnt from this many pairs, held in memory; 0: from all
    joined_dictionary: bool = True
    min_tokens: int = 1  # training pairs with a side of fewer tokens are dropped
    max_tokens: int = 250  # training pairs with a side of more tokens are dropped
    max_ratio: float = 0.0  # training pairs with a larger ratio of tokens between the sides are dropped; 0: none are
    train_min_words: int = 0  # training pairs with a shorter source, by `languages.length`, are dropped
    train_max_words: int = 0  # training pairs with a longer source, by `languages.length`, are dropped; 0: none are
    drop_identical: bool = False  # drop training pairs of two equal sides
    eval_max_tokens: int = 1000  # validation and test sentences are cut to this; fairseq's models take up to 1,024
    lowercase: bool = False  # lowercase all text of the model, on both sides, but not the references
    normalize: str = "nmt_nfkc"  # of NORMALIZATIONS
    character_coverage: float = 1.0  # the rest of the text's characters, all rare, are unknown to SentencePiece
    context: int = 0  # 1: join each sentence with the one before it in its document, and score only the last
    normalize_punctuation: bool = False  # apply Moses' normalize-punctuation to the same text

    def __post_init__(self) -> None:
        _require_one_of(self, "subwords", SUBWORDS)
        _require_one_of(self, "normalize", NORMALIZATIONS)
        least = dict.fromkeys(("vocabulary", "min_tokens", "max_tokens", "eval_max_tokens"), 1)
        least |= dict.fromkeys(("sample", "train_min_words", "train_max_words"), 0)
        for name, number in least.items():
            key, value = name.replace("_", "-"), getattr(self, name)
            require(value >= number, key, f"'{value}' is not a whole number of at least {number}")
        ratio, share = self.max_ratio, self.character_coverage
        require(not ratio or ratio >= 1, "max-ratio", f"'{ratio}' is not a ratio of at least 1, or 0 for any")
        require(0 < share <= 1, "character-coverage", f"'{share}' is not a share above 0, 1 at most, such as 0.9995")
        require(self.context in (0, 1), "context", f"'{self.context}' is not one of 0, 1")
        for key, default in (("normalize", NORMALIZATIONS[0]), ("character-coverage", 1.0)):
            unused = getattr(self, key.replace("-", "_")) != default and self.subwords != "sentencepiece"
            require(not unused, key, "needs 'subwords: sentencepiece', which reads it: leave it out")
        low, high = self.train_min_words, self.train_max_words
        problem = f"{low} is more than train-max-words, {high}: no pair would be left; change one"
        require(not high or low <= high, "train-min-words", problem)

    @property
    def changes(self) -> list[str]:
        """The keys of the changes that text goes through before it is split into subwords, in order."""
        changes = {"lowercase": self.lowercase, "normalize-punctuation": self.normalize_punctuation}
        return [name for name, wanted in changes.items() if wanted]


@dataclass(frozen=True)
class Model:
    """What the model is, beside fairseq's flags."""

    size: str = MISSING
    setup: str = ""  # part of the experiments' names, so that several recipes may share a corpus
    pairs: list[str] = field(default_factory=list)  # the corpus's pairs that it is for; by default all

    def __post_init__(self) -> None:
        if self.setup:
            require_name(self.setup, "setup")
        _require_pairs(self.pairs)


@dataclass(frozen=True)
class Train:
    """The batch, from which --update-freq follows."""

    batch_tokens: int = 0

    def __post_init__(self) -> None:
        require(self.batch_tokens >= 0, "batch-tokens", f"'{self.batch_tokens}' is not a whole number")


@dataclass(frozen=True)
class Generate:
    """Which checkpoints translate, and the length penalty."""

    average: int = 1  # number of checkpoints that are averaged; 1: only the last is used
    average_by: str = "epochs"  # average checkpoints of the last epochs, or of the last --save-interval-updates
    length_penalty: str = "power"  # power: fairseq's; wu: that of Wu et al. 2016, which the papers use

    def __post_init__(self) -> None:
        require(self.average >= 1, "average", f"'{self.average}' is not a whole number of at least 1")
        _require_one_of(self, "average-by", tuple(SAVE_INTERVAL))
        _require_one_of(self, "length-penalty", tuple(GENERATION_TASKS))


@dataclass(frozen=True)
class Scoring:
    """Scores beside SacreBLEU's BLEU and chrF against the reference."""

    testsets: dict[str, str] = field(default_factory=dict)  # SacreBLEU's names of the recipe's test sets
    #: also compute a tokenized BLEU, as papers report it: `split` is cased and splits compounds, `lowercase` does
    #: neither; empty: do not
    tokenized: str = ""
    metrics: list[str] = field(default_factory=list)  # of METRICS
    tokenize: str | None = None  # SacreBLEU's tokenizer of BLEU; None: that of the target language

    def __post_init__(self) -> None:
        if self.tokenized:
            _require_one_of(self, "tokenized", tuple(TOKENIZED_KINDS))
        for metric in self.metrics:
            require(metric in METRICS, "metrics", f"'{metric}' is not one of {', '.join(METRICS)}")
        if self.tokenize is not None:
            from sacrebleu.metrics.bleu import BLEU

            _require_one_of(self, "tokenize", tuple(BLEU.TOKENIZERS))
        if self.testsets:
            from sacrebleu.dataset import DATASETS

            for name in self.testsets.values():
                problem = f"'{name}' is not a test set of SacreBLEU; `sacrebleu --list` names them all"
                require(name in DATASETS, "testsets", problem)

    @property
    def historical(self) -> bool:
        """Whether a tokenized BLEU is computed, too."""
        return bool(self.tokenized)


@dataclass(frozen=True)
class Recipe:
    """The contents of a recipe."""

    path: Path
    corpus: Corpus
    prepare: Prepare
    size: str
    setup: str | None
    pairs: list[str]
    model: Flags
    train: Flags
    batch_tokens: int | None
    generate: Flags
    average: int
    average_by: str
    length_penalty: str
    score: Scoring
    experiments: dict[str, list[str]]
    default_experiments: list[str]
    # Where each (section, key) was set: a file; None for --set; or the text that was given as --experiments.
    origins: dict[tuple[str, str], Path | str | None] = field(default_factory=dict)

    @property
    def overridden(self) -> Flags:
        """The values of `model` and `train` set by --set; like flags after --, they make a different experiment."""
        sections = {"model": {**self.model, "size": self.size}, "train": {**self.train}}
        if self.batch_tokens:
            sections["train"]["batch-tokens"] = str(self.batch_tokens)
        return {
            key: sections[section][key]
            for (section, key), origin in self.origins.items()
            if origin is None and key in sections.get(section, {})
        }

    def where(self, section: str, key: str) -> str:
        """The place where a value was set, for error messages."""
        return where_written(self.origins.get((section, key), self.path), section, key)


def where_written(origin: Path | str | None, section: str, key: str) -> str:
    """The place where a value was set, from an origin as in `Recipe.origins`."""
    if isinstance(origin, str):
        return f"--experiments '{origin}'"
    return f"--set {section}.{key}" if origin is None else f"{origin}, {section}.{key}"
