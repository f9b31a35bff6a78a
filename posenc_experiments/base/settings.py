"""Reads and checks a recipe's .conf, an INI file of values.

`[corpus]`, `[prepare]` and `[score]` hold keys of this pipeline. `[model]`, `[train]` and `[generate]` hold flags of
fairseq, which are passed on as `--key value` (an empty value makes a bare `--key`); the only keys there that are not
fairseq's are `size`, `setup`, `pairs`, `batch-tokens`, `average`, `average-by` and `length-penalty`. `[experiments]`
has one row for each experiment, `name = ENCODING [flags]`, and `default`, the names that run without --experiments.

`[extends] conf = a.conf b.conf` reads other files first, in order; their paths are relative to the file that extends
them. Later values override earlier ones, key by key. `--set SECTION.KEY=VALUE` overrides all files.
"""

import configparser
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from posenc_experiments.base import convert
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.flags import RESERVED, Flags, parse_flags
from posenc_experiments.base.recipe import (
    GENERATION_TASKS,
    METRICS,
    NORMALIZATIONS,
    SAVE_INTERVAL,
    SUBWORDS,
    TOKENIZED_KINDS,
    Corpus,
    Prepare,
    Recipe,
    Scoring,
    where_written,
)

SECTIONS = ("extends", "corpus", "prepare", "model", "train", "generate", "score", "experiments")
T = TypeVar("T")


@dataclass(frozen=True)
class _Value:
    """The text that a key was set to, and the file that sets it, or None for --set."""

    text: str
    origin: Path | None


class _Section:
    """One section of a .conf; its errors name file, section and key."""

    def __init__(self, path: Path, name: str, values: dict[str, _Value]) -> None:
        self.path, self.name = path, name
        self.values = {key: value.text for key, value in values.items()}
        self.origins = {key: value.origin for key, value in values.items()}
        self.asked: set[str] = set()

    def error(self, key: str, problem: str) -> RecipeError:
        return RecipeError(f"{where_written(self.origins.get(key, self.path), self.name, key)}: {problem}")

    def folder(self, key: str) -> Path:
        """The directory that a path in this value is relative to: that of its file, or the current one for --set."""
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


def _corpus(section: _Section) -> Corpus:
    def file(key: str) -> Path | None:
        def convert(text: str) -> Path | None:
            path = section.folder(key) / text
            if not path.is_file():
                raise ValueError(f"there is no file {path}")
            return path

        return section.get(key, convert)

    kinds = section.values.keys() & {"sources", "generator", "text"}
    if len(kinds) != 1:
        raise section.error("sources", "give one of 'sources', 'generator' and 'text'.")
    name = section.get("name", convert.name)
    pairs = section.get("pairs", convert.pairs)
    train_keys = [key for key in section.values if key.startswith("train.")]
    for key in train_keys:
        pair = key.removeprefix("train.")
        if pair not in pairs and "-".join(reversed(pair.split("-"))) not in pairs:
            raise section.error(key, f"'{pair}' is not a pair of this recipe; its pairs are {', '.join(pairs)}.")
    sources = file("sources") if "sources" in kinds else None
    archives = file("archives") if "archives" in section.values else None
    if sources is not None and archives is None:
        archives = sources.with_name("archives.tsv")
        if not archives.is_file():
            raise section.error("archives", f"is missing, and there is no {archives} either; add the key or the table.")
    corpus = Corpus(
        name=name,
        pairs=pairs,
        train=section.get("train", convert.some_words),
        valid=section.get("valid", str),
        tests=section.get("tests", convert.some_words),
        train_by_pair={key.removeprefix("train."): section.get(key, convert.some_words) for key in train_keys},
        sources=sources,
        archives=archives,
        counts=file("counts") if "counts" in section.values else None,
        downloads=section.get("downloads", convert.folder_name, f"{name}/download"),
        generator=file("generator") if "generator" in kinds else None,
        generator_options=section.get("generator-options", convert.shell_words, []),
        takes_source=section.get("takes-source", convert.boolean, False),
        # The stage download checks that it exists, because later stages may run on a machine without it.
        text=section.get("text", section.folder("text").joinpath) if "text" in kinds else None,
    )
    section.refuse_rest()
    return corpus


def _prepare(section: _Section) -> Prepare:
    kinds: dict[type, Callable[[str], Any]] = {bool: convert.boolean, int: convert.whole(1), float: convert.ratio}
    by_name: dict[str, Callable[[str], Any]] = {"subwords": convert.choice(SUBWORDS)}
    by_name["normalize"] = convert.choice(NORMALIZATIONS)
    by_name["character_coverage"] = convert.share
    by_name["context"] = lambda text: int(convert.choice(("0", "1"))(text))
    by_name |= dict.fromkeys(("sample", "train_min_words", "train_max_words"), convert.whole(0))
    found = {
        field.name: section.get(
            field.name.replace("_", "-"), by_name.get(field.name) or kinds[type(field.default)], field.default
        )
        for field in fields(Prepare)
    }
    section.refuse_rest()
    for key in ("normalize", "character_coverage"):
        if found[key] != getattr(Prepare(), key) and found["subwords"] != "sentencepiece":
            name = key.replace("_", "-")
            raise section.error(name, "needs 'subwords = sentencepiece', which reads it: leave it out.")
    if found["train_min_words"] > found["train_max_words"] > 0:
        raise section.error(
            "train-min-words",
            f"{found['train_min_words']} is more than train-max-words, {found['train_max_words']}: no pair would be "
            "left; change one.",
        )
    return Prepare(**found)


def _score(section: _Section, tests: list[str]) -> Scoring:
    def testsets(text: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for word in convert.words(text):
            test, _, name = word.partition("=")
            if test not in tests or not name or test in found:
                raise ValueError(
                    f"'{word}' is not a test set of [corpus] ({', '.join(tests)}), '=' and its name in SacreBLEU, "
                    f"such as {tests[0]}=wmt14/full"
                )
            found[test] = name
        _known_to_sacrebleu(found.values())
        return found

    def metrics(text: str) -> tuple[str, ...]:
        return tuple(map(convert.choice(METRICS), convert.words(text)))

    default = Scoring()
    tokenized = section.get("tokenized", convert.choice(tuple(TOKENIZED_KINDS)), default.tokenized)
    historical = section.get("historical", convert.boolean, "tokenized" in section.values)
    if "tokenized" in section.values and not historical:
        raise section.error("tokenized", "needs 'historical = true', or no 'historical' at all.")
    scoring = Scoring(
        metrics=section.get("metrics", metrics, ()),
        tokenize=section.get("tokenize", _tokenizer, "") or None,
        historical=historical,
        testsets=section.get("testsets", testsets, {}),
        tokenized=tokenized,
    )
    section.refuse_rest()
    return scoring


def _tokenizer(text: str) -> str:
    from sacrebleu.metrics.bleu import BLEU

    return convert.choice(tuple(BLEU.TOKENIZERS))(text)


def _known_to_sacrebleu(names: Iterable[str]) -> None:
    from sacrebleu.dataset import DATASETS

    for name in names:
        if name not in DATASETS:
            raise ValueError(f"'{name}' is not a test set of SacreBLEU; `sacrebleu --list` names them all")


def _experiments(section: _Section) -> tuple[dict[str, list[str]], list[str]]:
    rows = {name: section.get(name, convert.shell_words) for name in section.values if name != "default"}
    for name, row in rows.items():
        if not row or row[0].startswith("-"):
            raise section.error(name, "starts with an encoding's name, such as 'shaw --clipping-distance 16'.")
        parse_flags(row[1:], where_written(section.origins[name], "experiments", name))
    if not rows:
        raise section.error(
            "default", "there is no experiment; add a row such as 'shaw-k16 = shaw --clipping-distance 16'."
        )
    default = section.get("default", convert.words, list(rows))
    for name in default:
        if name not in rows:
            raise section.error("default", f"'{name}' is not an experiment; the experiments are {', '.join(rows)}.")
    return rows, default


def parse_override(text: str) -> tuple[str, str, str]:
    """Splits `train.lr=1e-3` into section, key and value."""
    name, has_value, value = text.partition("=")
    section, has_key, key = name.partition(".")
    if not has_value or not has_key or not key.strip():
        raise RecipeError(f"--set {text}: write SECTION.KEY=VALUE, such as train.max-update=1000.")
    if section not in SECTIONS[1:]:
        raise RecipeError(f"--set {text}: [{section}] is not a section; the sections are {', '.join(SECTIONS[1:])}.")
    return section, key.strip(), value.strip()


def _read_file(path: Path, reading: tuple[Path, ...] = ()) -> dict[str, dict[str, _Value]]:
    """The values of a file over those of the files that it extends; `reading` are the files that extend this one."""
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
            raise RecipeError(f"{path} cannot be read ({error}): fix its permissions or its encoding.") from None
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
    for name in extends.get("conf", convert.words, others):
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
    """The path of a recipe's .conf with this name; RecipeError, beginning with `where`, if there is none."""
    path = folder / f"{name}.conf"
    if not path.is_file():
        names = ", ".join(sorted(one.stem for one in folder.glob("*.conf")))
        raise RecipeError(f"{where}: {folder} has no {path.name}; it has {names}.")
    return path


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Reads and checks a .conf.

    Args:
        path: the .conf.
        overrides: values of `--set`, which override those of the file.

    Raises:
        RecipeError: a value is wrong or missing; names file, section and key.
    """
    values = _read_file(path)
    for section, key, value in map(parse_override, overrides):
        values[section][key] = _Value(value, None)
    sections = {name: _Section(path, name, values[name]) for name in SECTIONS}
    corpus, prepare = _corpus(sections["corpus"]), _prepare(sections["prepare"])
    if prepare.context and corpus.generator is None:
        raise sections["prepare"].error("context", "needs documents, which only generated text has: leave it out.")
    size = sections["model"].get("size", str)
    setup = sections["model"].get("setup", convert.name, "")
    pairs = sections["model"].get("pairs", convert.pairs, corpus.pairs)
    for pair in pairs:
        if pair not in corpus.pairs:
            raise sections["model"].error("pairs", f"'{pair}' is not one of [corpus] pairs, {', '.join(corpus.pairs)}.")
    batch_tokens = sections["train"].get("batch-tokens", convert.whole(0), 0)
    if batch_tokens and "max-tokens" not in sections["train"].values:
        raise sections["train"].error("max-tokens", "is missing; batch-tokens needs it, to derive --update-freq.")
    if batch_tokens:
        sections["train"].get("max-tokens", convert.whole(1))
        sections["train"].asked.discard("max-tokens")  # only checked here: it remains a flag of fairseq
    for key in sections["train"].rest():
        if key in sections["model"].values:
            other = where_written(sections["model"].origins[key], "model", key)
            raise sections["train"].error(key, f"is set by {other}, too: leave one out.")
    average = sections["generate"].get("average", convert.whole(1), 1)
    average_by = sections["generate"].get("average-by", convert.choice(tuple(SAVE_INTERVAL)), "epochs")
    length_penalty = sections["generate"].get("length-penalty", convert.choice(tuple(GENERATION_TASKS)), "power")
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
