"""The contents of a recipe's .conf as dataclasses."""

from dataclasses import dataclass, field
from pathlib import Path

from posenc_experiments.base.flags import Flags

#: methods of [prepare] subwords
SUBWORDS = ("sentencepiece", "subword-nmt", "none")
#: SentencePiece's rules of [prepare] normalize: NFKC with more spaces, NFKC, and none
NORMALIZATIONS = ("nmt_nfkc", "nfkc", "identity")
#: the flag for the interval between checkpoints of each [generate] average-by
SAVE_INTERVAL = {"epochs": "save-interval", "updates": "save-interval-updates"}
#: the fairseq task whose search uses each [generate] length-penalty; either task can use models trained with the other
GENERATION_TASKS = {"power": "translation", "wu": "translation_gnmt_penalty"}
#: the metrics of SacreBLEU that [score] metrics adds to BLEU and chrF
METRICS = ("chrf++", "ter")
#: the kinds of [score] tokenized, and the word for each in tables
TOKENIZED_KINDS = {"split": "historical", "lowercase": "lowercased"}


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
    takes_source: bool = False  # the generator has an option --source DIR, a directory with what it makes the text from
    text: Path | None = None  # a directory of the user's own text: train.en, train.de...

    def train_splits(self, pair: str) -> list[str]:
        """The splits that a pair trains on, which are the same for the reverse pair."""
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

    @property
    def changes(self) -> list[str]:
        """The .conf's keys of the changes that text goes through before it is split into subwords, in order."""
        changes = {"lowercase": self.lowercase, "normalize-punctuation": self.normalize_punctuation}
        return [name for name, wanted in changes.items() if wanted]


@dataclass(frozen=True)
class Scoring:
    """Scores beside SacreBLEU's BLEU and chrF against the reference."""

    historical: bool = False  # also compute a tokenized BLEU, as papers report it
    testsets: dict[str, str] = field(default_factory=dict)  # SacreBLEU's names of the recipe's test sets
    tokenized: str = "split"  # the tokenized BLEU: `split` is cased and splits compounds, `lowercase` does neither
    metrics: tuple[str, ...] = ()  # of METRICS
    tokenize: str | None = None  # SacreBLEU's tokenizer of BLEU; None: that of the target language


@dataclass(frozen=True)
class Recipe:
    """The contents of a .conf."""

    path: Path
    corpus: Corpus
    prepare: Prepare
    size: str
    setup: str | None  # part of the experiments' names, so that several .conf files may share a corpus
    pairs: list[str]  # the corpus's pairs that this model is for; by default all
    model: Flags
    train: Flags
    batch_tokens: int | None
    generate: Flags
    average: int  # number of checkpoints that are averaged; 1: only the last is used
    average_by: str  # average checkpoints of the last epochs, or of the last --save-interval-updates
    length_penalty: str  # power: fairseq's; wu: that of Wu et al. 2016, which the papers use
    score: Scoring
    experiments: dict[str, list[str]]
    default_experiments: list[str]
    # Where each (section, key) was set: a file; None for --set; or the text that was given as --experiments.
    origins: dict[tuple[str, str], Path | str | None] = field(default_factory=dict)

    @property
    def overridden(self) -> Flags:
        """The values of [model] and [train] set by --set; like flags after --, they make a different experiment."""
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
    return f"--set {section}.{key}" if origin is None else f"{origin}, section [{section}], key '{key}'"
