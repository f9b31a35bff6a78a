"""A recipe's .conf: an INI file that holds values only, checked when it is read.

`[corpus]`, `[prepare]` and `[score]` are this pipeline's own keys. `[model]`, `[train]` and `[generate]` hold fairseq's
own flag names and are passed through as `--key value` (an empty value makes a bare `--key`); the only keys
there that are not fairseq's are those in `OWN_KEYS`. `[experiments]` has one row an experiment, `name =
ENCODING [flags]`, and `default`, the names run when none are asked for.
"""

import configparser
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from recipes.common.errors import RecipeError

SECTIONS = ("corpus", "prepare", "model", "train", "generate", "score", "experiments")
SUBWORDS = ("sentencepiece", "subword-nmt", "none")
OWN_KEYS = {"model": {"size"}, "train": {"batch-tokens"}, "generate": {"average", "average-by", "length-penalty"}}
T = TypeVar("T")
Flags = dict[str, str]


@dataclass(frozen=True)
class Corpus:
    """Where the text comes from: a table of sources, or a generator with its options."""

    name: str
    pairs: list[str]
    train: str
    valid: str
    tests: list[str]
    sources: Path | None = None
    generator: Path | None = None
    generator_options: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Prepare:
    """How text becomes tokens."""

    subwords: str = "sentencepiece"
    vocabulary: int = 32000
    sample: int = 5_000_000  # pairs from which subwords are learnt, in memory; 0: all
    joined_dictionary: bool = True
    max_tokens: int = 250  # a longer training sentence is dropped
    eval_max_tokens: int = 1000  # a longer validation or test sentence is cut, for fairseq's models end at 1,024


@dataclass(frozen=True)
class Scoring:
    """What is scored beside SacreBLEU's BLEU and chrF on the reference."""

    historical: bool = False
    testsets: dict[str, str] = field(default_factory=dict)  # SacreBLEU's name of a test set


@dataclass(frozen=True)
class Recipe:
    """Everything a .conf says."""

    path: Path
    corpus: Corpus
    prepare: Prepare
    size: str
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


class _Section:
    """One section of a .conf, with errors that name file, section and key."""

    def __init__(self, path: Path, name: str, values: dict[str, str]) -> None:
        self.path, self.name, self.values = path, name, values
        self.asked: set[str] = set()

    def error(self, key: str, problem: str) -> RecipeError:
        return RecipeError(f"{self.path}, section [{self.name}], key '{key}': {problem}")

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


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _choice(choices: tuple[str, ...]) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text not in choices:
            raise ValueError(f"'{text}' is not one of {', '.join(choices)}")
        return text

    return convert


def _pairs(text: str) -> list[str]:
    for pair in _words(text):
        source, _, target = pair.partition("-")
        if not source or not target or "-" in target or source == target:
            raise ValueError(f"'{pair}' is not a pair of two languages such as en-de")
    return _words(text)


def _corpus(section: _Section) -> Corpus:
    folder = section.path.parent

    def file(text: str) -> Path | None:
        if not (folder / text).is_file():
            raise ValueError(f"there is no file {folder / text}")
        return folder / text

    has = section.values.keys() & {"sources", "generator"}
    if len(has) != 1:
        raise section.error("sources", "give either 'sources' or 'generator'")
    corpus = Corpus(
        name=section.get("name", str),
        pairs=section.get("pairs", _pairs),
        train=section.get("train", str),
        valid=section.get("valid", str),
        tests=section.get("tests", _words),
        sources=section.get("sources", file) if "sources" in has else None,
        generator=section.get("generator", file) if "generator" in has else None,
        generator_options=section.get("generator-options", shlex.split, []),
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
        max_tokens=section.get("max-tokens", _whole(1), default.max_tokens),
        eval_max_tokens=section.get("eval-max-tokens", _whole(1), default.eval_max_tokens),
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

    scoring = Scoring(section.get("historical", _boolean, False), section.get("testsets", testsets, {}))
    section.refuse_rest()
    return scoring


def _known_to_sacrebleu(names: Iterable[str]) -> None:
    from sacrebleu.dataset import DATASETS

    for name in names:
        if name not in DATASETS:
            raise ValueError(f"'{name}' is not a test set of SacreBLEU; `sacrebleu --list` names them all")


def _experiments(section: _Section) -> tuple[dict[str, list[str]], list[str]]:
    rows = {name: shlex.split(value) for name, value in section.values.items() if name != "default"}
    for name, row in rows.items():
        if not row or row[0].startswith("-"):
            raise section.error(name, "starts with an encoding's name, such as 'shaw --clipping-distance 16'.")
        parse_flags(row[1:], f"{section.path}, section [experiments], key '{name}'")
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


def read_recipe(path: Path) -> Recipe:
    """Reads and checks a .conf; RecipeError names file, section and key of the first fault."""
    parser = configparser.ConfigParser(
        interpolation=None,
        delimiters=("=",),
        comment_prefixes=("#",),
        inline_comment_prefixes=None,
        default_section="",
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_file(file)
    except FileNotFoundError:
        raise RecipeError(f"--conf {path}: there is no such file.") from None
    except (configparser.Error, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} is not a valid .conf: {' '.join(str(error).split())}") from None
    for name in parser.sections():
        if name not in SECTIONS:
            raise RecipeError(f"{path}: [{name}] is not a section; the sections are {', '.join(SECTIONS)}.")
    sections = {name: _Section(path, name, dict(parser[name]) if name in parser else {}) for name in SECTIONS}
    corpus, prepare = _corpus(sections["corpus"]), _prepare(sections["prepare"])
    size = sections["model"].get("size", str)
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
            if not re.fullmatch(r"[a-z][a-z0-9-]*", key):
                raise sections[name].error(
                    key, "is not a flag of fairseq; write it without dashes in front, such as max-tokens."
                )
    return Recipe(
        path=path,
        corpus=corpus,
        prepare=prepare,
        size=size,
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
    )
