"""A recipe's .conf: an INI file that holds values only, checked when it is read.

`[corpus]`, `[prepare]` and `[score]` are this pipeline's own keys. `[model]`, `[train]` and `[generate]` hold fairseq's
own flag names and are passed through as `--key value` (an empty value makes a bare `--key`); the only keys
there that are not fairseq's are `size`, `setup`, `pairs`, `batch-tokens`, `average`, `average-by` and `length-penalty`.
`[experiments]` has one row an experiment, `name = ENCODING [flags]`, and `default`, the names run when none are asked
for.

`[extends] conf = a.conf b.conf` reads other files first, in order, relative to the file that says so; later values
win, key by key. `--set SECTION.KEY=VALUE` wins over all files.
"""

import configparser
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from posenc_experiments.base.errors import RecipeError

SECTIONS = ("extends", "corpus", "prepare", "model", "train", "generate", "score", "experiments")
SUBWORDS = ("sentencepiece", "subword-nmt", "none")
TOKENIZED = ("split", "lowercase")
# Flags of fairseq that the pipeline gives itself, and what to use instead.
RESERVED = {
    "seed": "give --seeds",
    "arch": "set [model] size, and the encoding in [experiments]",
    "save-dir": "give --output-dir",
    "results-path": "give --output-dir",
    "source-lang": "give --pair",
    "target-lang": "give --pair",
    "gen-subset": "set [corpus] tests",
    "path": "the experiment's averaged checkpoint is translated with",
    "task": "set [generate] length-penalty",
    "user-dir": "it is this plugin",
    "cpu": "give --gpus 0",
    "distributed-world-size": "give --gpus, --processes or --nodes",
    "tensorboard-logdir": "give --tensorboard",
    "wandb-project": "give --wandb",
    **dict.fromkeys(
        ["post-process", "remove-bpe", "bpe", "tokenizer"],
        "the pipeline makes text of tokens itself, [prepare] subwords",
    ),
    **dict.fromkeys(
        ["quiet", "score-reference", "num-shards", "shard-id", "scoring", "sacrebleu", "dataset-impl"], "leave it out"
    ),
    **dict.fromkeys(
        ["restore-file", "continue-once", "no-save", "no-last-checkpoints", "checkpoint-suffix"],
        "trainings are resumed by it",
    ),
    "required-batch-size-multiple": "it is 1, so that no pair is lost",
    "log-format": "the pipeline reads the log as JSON",
    "write-checkpoints-asynchronously": "leave it out: a stage ends when its files are whole",
    **dict.fromkeys(["train-subset", "valid-subset"], "set [corpus] train and valid"),
    **dict.fromkeys(
        ["tpu", "distributed-rank", "distributed-init-method", "distributed-no-spawn", "distributed-port"],
        "give --gpus, --nodes and --rendezvous",
    ),
}
T = TypeVar("T")
Flags = dict[str, str]


@dataclass(frozen=True)
class Corpus:
    """Where the text comes from: a table of sources, or a generator with its options."""

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
        return _where(self.origins.get((section, key), self.path), section, key)


@dataclass(frozen=True)
class _Value:
    """What a key was set to, and in which file; None: by --set."""

    text: str
    origin: Path | None


def _where(origin: Path | str | None, section: str, key: str) -> str:
    if isinstance(origin, str):
        return f"--experiments '{origin}'"
    return f"--set {section}.{key}" if origin is None else f"{origin}, section [{section}], key '{key}'"


class _Section:
    """One section of a .conf, with errors that name file, section and key."""

    def __init__(self, path: Path, name: str, values: dict[str, _Value]) -> None:
        self.path, self.name = path, name
        self.values = {key: value.text for key, value in values.items()}
        self.origins = {key: value.origin for key, value in values.items()}
        self.asked: set[str] = set()

    def error(self, key: str, problem: str) -> RecipeError:
        return RecipeError(f"{_where(self.origins.get(key, self.path), self.name, key)}: {problem}")

    def folder(self, key: str) -> Path:
        """What a path in this value is relative to: its file's directory, or the current one for --set."""
        origin = self.origins.get(key, self.path)
        return Path() if origin is None else origin.parent

    def get(self, key: str, convert: Callable[[str], T], default: T | None = None) -> T:
        self.asked.add(key)
        if key not in self.values:
            if default is None:
                raise self.error(key, "is missing; add it.")
            return default
        try:
            return convert(self.values[key])
        except ValueError as error:
            raise self.error(key, f"{error}.") from None

    def rest(self) -> Flags:
        return {key: value for key, value in self.values.items() if key not in self.asked}

    def refuse_rest(self) -> None:
        for key in self.rest():
            raise self.error(key, f"is not an option; the options are {', '.join(sorted(self.asked))}.")


def _whole(minimum: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not re.fullmatch(r"\d+", text) or int(text) < minimum:
            raise ValueError(f"'{text}' is not a whole number of at least {minimum}")
        return int(text)

    return convert


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"'{text}' is not true or false")
    return text == "true"


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text):
        raise ValueError(f"'{text}' is not a name of letters, digits, '.', '_' and '-'")
    return text


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _shell_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"'{text}' cannot be split into words ({error})") from None


def _some_words(text: str) -> list[str]:
    words = _words(text)
    if not words or len(set(words)) != len(words):
        raise ValueError(f"'{text}' must name at least one, and each once")
    return words


def _ratio(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text) or 0 < float(text) < 1:
        raise ValueError(f"'{text}' is not a ratio of at least 1, such as 1.5, or 0 for any")
    return float(text)


def _folder_name(text: str) -> str:
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)*", text) or ".." in text.split("/"):
        raise ValueError(f"'{text}' is not the name of a directory under --data-dir, such as wmt/download")
    return text


def _choice(choices: tuple[str, ...]) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text not in choices:
            raise ValueError(f"'{text}' is not one of {', '.join(choices)}")
        return text

    return convert


def _pairs(text: str) -> list[str]:
    for pair in _some_words(text):
        source, _, target = pair.partition("-")
        if not source or not target or "-" in target or source == target:
            raise ValueError(f"'{pair}' is not a pair of two languages such as en-de")
    return _words(text)


def _corpus(section: _Section) -> Corpus:
    def file(key: str) -> Path | None:
        def convert(text: str) -> Path | None:
            path = section.folder(key) / text
            if not path.is_file():
                raise ValueError(f"there is no file {path}")
            return path

        return section.get(key, convert)

    has = section.values.keys() & {"sources", "generator"}
    if len(has) != 1:
        raise section.error("sources", "give either 'sources' or 'generator'")
    name = section.get("name", _name)
    pairs = section.get("pairs", _pairs)
    of_pairs = [key for key in section.values if key.startswith("train.")]
    for key in of_pairs:
        pair = key.removeprefix("train.")
        if pair not in pairs and "-".join(reversed(pair.split("-"))) not in pairs:
            raise section.error(key, f"'{pair}' is not a pair of this recipe; its pairs are {', '.join(pairs)}.")
    sources = file("sources") if "sources" in has else None
    archives = file("archives") if "archives" in section.values else None
    if sources is not None and archives is None:
        archives = sources.with_name("archives.tsv")
        if not archives.is_file():
            raise section.error("archives", f"is missing, and there is no {archives} either; add the key or the table.")
    corpus = Corpus(
        name=name,
        pairs=pairs,
        train=section.get("train", _some_words),
        valid=section.get("valid", str),
        tests=section.get("tests", _some_words),
        train_by_pair={key.removeprefix("train."): section.get(key, _some_words) for key in of_pairs},
        sources=sources,
        archives=archives,
        counts=file("counts") if "counts" in section.values else None,
        downloads=section.get("downloads", _folder_name, f"{name}/download"),
        generator=file("generator") if "generator" in has else None,
        generator_options=section.get("generator-options", _shell_words, []),
    )
    section.refuse_rest()
    return corpus


def _prepare(section: _Section) -> Prepare:
    default = Prepare()
    prepare = Prepare(
        subwords=section.get("subwords", _choice(SUBWORDS), default.subwords),
        vocabulary=section.get("vocabulary", _whole(1), default.vocabulary),
        joined_dictionary=section.get("joined-dictionary", _boolean, default.joined_dictionary),
        sample=section.get("sample", _whole(0), default.sample),
        min_tokens=section.get("min-tokens", _whole(1), default.min_tokens),
        max_tokens=section.get("max-tokens", _whole(1), default.max_tokens),
        max_ratio=section.get("max-ratio", _ratio, default.max_ratio),
        drop_identical=section.get("drop-identical", _boolean, default.drop_identical),
        eval_max_tokens=section.get("eval-max-tokens", _whole(1), default.eval_max_tokens),
        lowercase=section.get("lowercase", _boolean, default.lowercase),
        normalize_punctuation=section.get("normalize-punctuation", _boolean, default.normalize_punctuation),
    )
    section.refuse_rest()
    return prepare


def _score(section: _Section, tests: list[str]) -> Scoring:
    def testsets(text: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for word in _words(text):
            test, _, name = word.partition("=")
            if test not in tests or not name or test in found:
                raise ValueError(
                    f"'{word}' is not a test set of [corpus] ({', '.join(tests)}) with SacreBLEU's name for it, "
                    f"such as {tests[0]}=wmt14/full"
                )
            found[test] = name
        _known_to_sacrebleu(found.values())
        return found

    default = Scoring()
    tokenized = section.get("tokenized", _choice(TOKENIZED), default.tokenized)
    historical = section.get("historical", _boolean, "tokenized" in section.values)
    if "tokenized" in section.values and not historical:
        raise section.error("tokenized", "needs 'historical = true', or no 'historical' at all.")
    scoring = Scoring(historical, section.get("testsets", testsets, {}), tokenized)
    section.refuse_rest()
    return scoring


def _known_to_sacrebleu(names: Iterable[str]) -> None:
    from sacrebleu.dataset import DATASETS

    for name in names:
        if name not in DATASETS:
            raise ValueError(f"'{name}' is not a test set of SacreBLEU; `sacrebleu --list` names them all")


def _experiments(section: _Section) -> tuple[dict[str, list[str]], list[str]]:
    rows = {name: section.get(name, _shell_words) for name in section.values if name != "default"}
    for name, row in rows.items():
        if not row or row[0].startswith("-"):
            raise section.error(name, "starts with an encoding's name, such as 'shaw --clipping-distance 16'.")
        parse_flags(row[1:], _where(section.origins[name], "experiments", name))
    if not rows:
        raise section.error(
            "default", "there is no experiment; add a row such as 'shaw-k16 = shaw --clipping-distance 16'."
        )
    default = section.get("default", _words, list(rows))
    for name in default:
        if name not in rows:
            raise section.error("default", f"'{name}' is not an experiment; the experiments are {', '.join(rows)}.")
    return rows, default


def parse_flags(words: list[str], where: str) -> Flags:
    """`--a 1 --b --c x` as {"a": "1", "b": "", "c": "x"}; `where` names their origin in the error."""
    flags: Flags = {}
    name = None
    for word in words:
        if re.match(r"--[a-z]", word):
            name, has_value, value = word[2:].partition("=")
            if name in RESERVED:
                raise RecipeError(f"{where}: --{name} is set by the pipeline: {RESERVED[name]}.")
            if name in flags:
                raise RecipeError(f"{where}: --{name} is given twice; leave one out.")
            flags[name] = value
            if has_value:
                name = None
        elif name is None:
            raise RecipeError(f"{where}: '{word}' belongs to no flag; write flags as --name value.")
        else:
            flags[name] = word
            name = None
    return flags


def flag_words(flags: Flags) -> list[str]:
    """The reverse of `parse_flags`: command-line words."""
    # fairseq reads a value that starts with '-' as a flag, unless it is joined by '='.
    words: list[str] = []
    for name, value in flags.items():
        words += [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", *([value] if value else [])]
    return words


def parse_override(text: str) -> tuple[str, str, str]:
    """`train.lr=1e-3` as section, key and value."""
    name, has_value, value = text.partition("=")
    section, has_key, key = name.partition(".")
    if not has_value or not has_key or not key.strip():
        raise RecipeError(f"--set {text}: write SECTION.KEY=VALUE, such as train.max-update=1000.")
    if section not in SECTIONS[1:]:
        raise RecipeError(f"--set {text}: [{section}] is not a section; the sections are {', '.join(SECTIONS[1:])}.")
    return section, key.strip(), value.strip()


def _read_file(path: Path, reading: tuple[Path, ...] = ()) -> dict[str, dict[str, _Value]]:
    """The values of a file and, below them, of those that it extends."""
    parser = configparser.ConfigParser(
        interpolation=None,
        delimiters=("=",),
        comment_prefixes=("#",),
        inline_comment_prefixes=None,
        default_section="",
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    try:
        with open(path, encoding="utf-8-sig") as file:
            parser.read_file(file)
    except (OSError, ValueError) as error:
        if isinstance(error, (PermissionError, UnicodeDecodeError)):
            raise RecipeError(f"{path} cannot be read ({error}): mend its permissions or its encoding.") from None
        where = f"{reading[-1]}, section [extends]" if reading else "--conf"
        raise RecipeError(f"{where}: there is no file {path}.") from None
    except configparser.Error as error:
        raise RecipeError(f"{path} is not a valid .conf: {' '.join(str(error).split())}") from None
    for name in parser.sections():
        if name not in SECTIONS:
            raise RecipeError(f"{path}: [{name}] is not a section; the sections are {', '.join(SECTIONS)}.")
    values: dict[str, dict[str, _Value]] = {name: {} for name in SECTIONS}
    extends = _Section(path, "extends", {key: _Value(text, path) for key, text in _items(parser, "extends")})
    others: list[str] = []
    for name in extends.get("conf", _words, others):
        other = path.parent / name
        if other.resolve() in [one.resolve() for one in (*reading, path)]:
            raise extends.error("conf", f"{other} extends itself.")
        for section, found in _read_file(other, (*reading, path)).items():
            values[section].update(found)
    extends.refuse_rest()
    for section in SECTIONS[1:]:
        values[section].update({key: _Value(text, path) for key, text in _items(parser, section)})
    return values


def _items(parser: configparser.ConfigParser, section: str) -> list[tuple[str, str]]:
    return list(parser[section].items()) if section in parser else []


def conf_in(folder: Path, name: str, where: str) -> Path:
    """A recipe's .conf by its name; RecipeError, which `where` begins, if there is none."""
    path = folder / f"{name}.conf"
    if not path.is_file():
        names = ", ".join(sorted(one.stem for one in folder.glob("*.conf")))
        raise RecipeError(f"{where}: {folder} has no {path.name}; it has {names}.")
    return path


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Reads and checks a .conf with the `--set` values over it; RecipeError names file, section and key of the first
    fault.
    """
    values = _read_file(path)
    for section, key, value in map(parse_override, overrides):
        values[section][key] = _Value(value, None)
    sections = {name: _Section(path, name, values[name]) for name in SECTIONS}
    corpus, prepare = _corpus(sections["corpus"]), _prepare(sections["prepare"])
    size = sections["model"].get("size", str)
    setup = sections["model"].get("setup", _name, "")
    pairs = sections["model"].get("pairs", _pairs, corpus.pairs)
    for pair in pairs:
        if pair not in corpus.pairs:
            raise sections["model"].error("pairs", f"'{pair}' is not one of [corpus] pairs, {', '.join(corpus.pairs)}.")
    batch_tokens = sections["train"].get("batch-tokens", _whole(0), 0)
    if batch_tokens and "max-tokens" not in sections["train"].values:
        raise sections["train"].error("max-tokens", "is missing; batch-tokens needs it, to derive --update-freq.")
    if batch_tokens:
        sections["train"].get("max-tokens", _whole(1))
        sections["train"].asked.discard("max-tokens")
    average = sections["generate"].get("average", _whole(1), 1)
    average_by = sections["generate"].get("average-by", _choice(("epochs", "updates")), "epochs")
    length_penalty = sections["generate"].get("length-penalty", _choice(("power", "wu")), "power")
    scoring = _score(sections["score"], corpus.tests)
    experiments, default = _experiments(sections["experiments"])
    for name in ("model", "train", "generate"):
        for key in sections[name].rest():
            if key in RESERVED:
                raise sections[name].error(key, f"is set by the pipeline: {RESERVED[key]}.")
            if not re.fullmatch(r"[a-z][a-z0-9-]*", key):
                raise sections[name].error(
                    key, "is not a flag of fairseq; write it without dashes in front, such as max-tokens."
                )
    return Recipe(
        path=path,
        corpus=corpus,
        prepare=prepare,
        size=size,
        setup=setup or None,
        pairs=pairs,
        model=sections["model"].rest(),
        train=sections["train"].rest(),
        batch_tokens=batch_tokens or None,
        generate=sections["generate"].rest(),
        average=average,
        average_by=average_by,
        length_penalty=length_penalty,
        score=scoring,
        experiments=experiments,
        default_experiments=default,
        origins={(name, key): origin for name in SECTIONS for key, origin in sections[name].origins.items()},
    )
