"""Reads and checks a recipe, a YAML file of values.

`corpus`, `prepare` and `score` hold keys of this pipeline. `model`, `train` and `generate` hold flags of fairseq, which
are passed on as `--key value` (no value makes a bare `--key`); the only keys there that are not fairseq's are `size`,
`setup`, `pairs`, `batch-tokens`, `average`, `average-by` and `length-penalty`. `experiments` has one row for each
experiment, `name: ENCODING [flags]`, and `default`, the names that run without --experiments.

`extends: [a.yaml, b.yaml]` reads other files first, in order; their paths are relative to the file that extends them.
Later values override earlier ones, key by key. `--set SECTION.KEY=VALUE` overrides all files.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.flags import RESERVED, Flags, parse_flags
from posenc_experiments.base.recipe import (
    Corpus,
    Fault,
    Generate,
    Model,
    Prepare,
    Recipe,
    Scoring,
    Train,
    where_written,
)

TYPES: dict[str, Any] = {
    "corpus": Corpus,
    "prepare": Prepare,
    "model": Model,
    "train": Train,
    "generate": Generate,
    "score": Scoring,
    "experiments": None,
}
WITH_FLAGS = ("model", "train", "generate")  # sections that also hold flags of fairseq
LISTS = ("pairs", "train", "tests", "metrics")  # keys whose values may also be words with blanks between them
PATHS = ("sources", "archives", "generator", "text")  # keys of `corpus`, relative to the file they are in
Values = dict[str, dict[str, Any]]  # by section and key


class _Loader(yaml.BaseLoader):
    """Leaves every value a string, so that a flag stays as it was typed; refuses a key that is given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise yaml.MarkedYAMLError(
                    problem=f"{name} is given twice: leave one out", problem_mark=node.start_mark
                )
        return super().construct_mapping(node, deep)


def _read_file(path: Path, where: str, reading: tuple[Path, ...] = ()) -> Iterator[tuple[Path, Values]]:
    """The files that a file extends and the file itself, in order, with their values.

    Args:
        where: what names the file, for errors.
        reading: the files that extend this one.
    """
    if path.resolve() in [one.resolve() for one in reading]:
        raise RecipeError(f"{where}: {path} extends itself.")
    try:
        values = yaml.load(path.read_text(encoding="utf-8-sig"), _Loader) or {}
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise RecipeError(f"{where}: there is no file {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} cannot be read ({error}): fix its permissions or its encoding.") from None
    except yaml.YAMLError as error:
        raise RecipeError(f"{path} is not a valid recipe: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise RecipeError(f"{path} is not a valid recipe: write sections such as `train:` with `key: value` below.")
    others = values.pop("extends", [])
    for other in others.split() if isinstance(others, str) else others:
        yield from _read_file(path.parent / other, f"{path}, extends", (*reading, path))
    for section, found in values.items():
        if section not in TYPES:
            raise RecipeError(f"{path}: {section} is not a section; the sections are {', '.join(TYPES)}.")
        if not isinstance(found, dict | str) or (found and isinstance(found, str)):
            raise RecipeError(f"{path}, {section}: write `key: value` in the lines below it.")
    yield path, {section: dict(found or {}) for section, found in values.items()}


def parse_override(text: str) -> tuple[str, str, str]:
    """Splits `train.lr=1e-3` into section, key and value."""
    name, has_value, value = text.partition("=")
    section, has_key, key = name.partition(".")
    if not has_value or not has_key or not key.strip():
        raise RecipeError(f"--set {text}: write SECTION.KEY=VALUE, such as train.max-update=1000.")
    if section not in TYPES:
        raise RecipeError(f"--set {text}: {section} is not a section; the sections are {', '.join(TYPES)}.")
    return section, key.strip(), value.strip()


class _Values:
    """The values of all files and of --set, by section and key, and where each was set."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: Values = {section: {} for section in TYPES}
        self.origins: dict[tuple[str, str], Path | str | None] = {}

    def error(self, section: str, key: str, problem: object) -> RecipeError:
        where = where_written(self.origins.get((section, key), self.path), section, key)
        return RecipeError(f"{where}: {str(problem).splitlines()[0].rstrip('.')}.")

    def set(self, section: str, key: str, value: Any, origin: Path | None) -> None:
        """Sets a value, which overrides that of earlier files, also where its key has '_' in place of '-'."""
        kind = TYPES[section]
        if kind is not None and key.replace("-", "_") in kind.__dataclass_fields__:
            key = key.replace("_", "-")
        self.values[section][key], self.origins[section, key] = value, origin

    def section(self, name: str) -> tuple[Any, Flags]:
        """The values of this pipeline in a section, checked, and the flags of fairseq in it."""
        node = OmegaConf.structured(TYPES[name])
        OmegaConf.set_readonly(node, False)
        known, flags = list(node), dict[str, str]()
        for key, value in self.values[name].items():
            field = key.replace("-", "_")
            if field not in known and name in WITH_FLAGS:
                flags[key] = self._flag(name, key, value)
                continue
            try:
                node[field] = self._converted(name, key, value)
            except OmegaConfBaseException as error:
                options = f"is not an option; the options are {', '.join(known).replace('_', '-')}"
                raise self.error(name, key, error if field in known else options) from None
        try:
            return OmegaConf.to_object(node), flags
        except Fault as fault:
            raise self.error(name, fault.key, fault) from None
        except OmegaConfBaseException as error:  # a value is missing
            raise self.error(name, str(error.full_key).replace("_", "-"), "is missing; add it") from None

    def _converted(self, section: str, key: str, value: Any) -> Any:
        """A value as the section's dataclass takes it: paths are relative to their file, lists may be words."""
        origin = self.origins[section, key]
        if not isinstance(value, str):
            return value
        if section == "corpus" and key in PATHS:
            return origin.parent / value if isinstance(origin, Path) else Path(value)
        if origin is None and value[:1] in ("[", "{"):  # as a file has it
            return yaml.load(value, _Loader)
        return words(value) if key in LISTS else value

    def _flag(self, section: str, key: str, value: Any) -> str:
        if key in RESERVED:
            raise self.error(section, key, f"is set by the pipeline: {RESERVED[key]}")
        if not re.fullmatch(r"[a-z][a-z0-9-]*", key):
            raise self.error(
                section, key, "is not a flag of fairseq; write it without dashes in front, such as max-tokens"
            )
        if not isinstance(value, str):
            raise self.error(section, key, "is a list or a mapping; write its text in quotes")
        return value

    def experiments(self) -> tuple[dict[str, list[str]], list[str]]:
        """The words of each experiment's row, and the names that run by default."""
        rows: dict[str, list[str]] = {}
        found = dict(self.values["experiments"])
        default = found.pop("default", list(found))
        for name, text in found.items():
            try:
                rows[name] = shlex.split(text)
            except (ValueError, AttributeError) as error:
                raise self.error("experiments", name, f"'{text}' cannot be split into words ({error})") from None
            if not rows[name] or rows[name][0].startswith("-"):
                problem = "starts with an encoding's name, such as 'shaw --clipping-distance 16'"
                raise self.error("experiments", name, problem)
            parse_flags(rows[name][1:], where_written(self.origins["experiments", name], "experiments", name))
        if not rows:
            problem = "there is no experiment; add a row such as 'shaw-k16: shaw --clipping-distance 16'"
            raise self.error("experiments", "default", problem)
        names = words(default) if isinstance(default, str) else default
        for name in names:
            if name not in rows:
                problem = f"'{name}' is not an experiment; the experiments are {', '.join(rows)}"
                raise self.error("experiments", "default", problem)
        return rows, names


def words(text: str) -> list[str]:
    """The words of a list with commas or spaces between them."""
    return text.replace(",", " ").split()


def conf_in(folder: Path, name: str, where: str) -> Path:
    """The path of a directory's recipe of this name; RecipeError, beginning with `where`, if there is none."""
    path = folder / f"{name}.yaml"
    if not path.is_file():
        names = ", ".join(sorted(one.stem for one in folder.glob("*.yaml")))
        raise RecipeError(f"{where}: {folder} has no {path.name}; it has {names}.")
    return path


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Reads and checks a recipe.

    Args:
        path: the YAML file.
        overrides: values of `--set`, which override those of the file.

    Raises:
        RecipeError: a value is wrong or missing; names file, section and key.
    """
    merged = _Values(path)
    for origin, sections in _read_file(path, "--conf"):
        for section, found in sections.items():
            for key, value in found.items():
                merged.set(section, key, value, origin)
    for section, key, value in map(parse_override, overrides):
        merged.set(section, key, value, None)
    read = {section: merged.section(section) for section, kind in TYPES.items() if kind is not None}
    corpus, prepare, model, train, generate, score = (found for found, _ in read.values())
    flags = {section: read[section][1] for section in WITH_FLAGS}
    for pair in model.pairs:
        if pair not in corpus.pairs:
            raise merged.error("model", "pairs", f"'{pair}' is not one of corpus.pairs, {', '.join(corpus.pairs)}")
    if prepare.context and corpus.generator is None:
        raise merged.error("prepare", "context", "needs documents, which only generated text has: leave it out")
    if train.batch_tokens and not flags["train"].get("max-tokens", "").isdecimal():
        raise merged.error(
            "train", "max-tokens", "is not a whole number; batch-tokens needs it, to derive --update-freq"
        )
    for key in flags["train"].keys() & flags["model"].keys():
        other = where_written(merged.origins["model", key], "model", key)
        raise merged.error("train", key, f"is set by {other}, too: leave one out")
    for test in score.testsets:
        if test not in corpus.tests:
            raise merged.error("score", "testsets", f"'{test}' is not one of corpus.tests, {', '.join(corpus.tests)}")
    experiments, default = merged.experiments()
    return Recipe(
        path=path,
        corpus=corpus,
        prepare=prepare,
        size=model.size,
        setup=model.setup or None,
        pairs=model.pairs or corpus.pairs,
        model=flags["model"],
        train=flags["train"],
        batch_tokens=train.batch_tokens or None,
        generate=flags["generate"],
        average=generate.average,
        average_by=generate.average_by,
        length_penalty=generate.length_penalty,
        score=score,
        experiments=experiments,
        default_experiments=default,
        origins=merged.origins,
    )
