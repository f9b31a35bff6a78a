"""Reads and checks a recipe, a YAML file of values.

`corpus`, `prepare` and `score` hold keys of this pipeline. `model`, `train` and `generate` hold flags of fairseq, which
are passed on as `--key value` (no value makes a bare `--key`); the only keys there that are not fairseq's are `size`,
`setup`, `pairs`, `batch-tokens`, `average`, `average-by` and `length-penalty`. `experiments` has one row for each
experiment, `name: ENCODING [flags]`, and `default`, the names that run without --experiments.

`extends: [a.yaml, b.yaml]` reads other files first, in order; their paths are relative to the file that extends them.
Later values override earlier ones, key by key. `--set SECTION.KEY=VALUE` overrides all files.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException

from posenc_experiments.base.errors import RecipeError, meant
from posenc_experiments.base.flags import RESERVED, Flags, parse_flags
from posenc_experiments.base.recipe import TYPES, Fault, Origins, Recipe, require, where_written
from posenc_experiments.base.run import ROOT

SECTIONS = (*TYPES, "experiments")
LISTS = ("pairs", "train", "tests", "metrics")  # keys whose values may also be words with blanks between them
PATHS = ("sources", "archives", "generator", "text")  # keys of `corpus`, relative to the file they are in


class StrictLoader(yaml.SafeLoader):
    """A loader of YAML that refuses a key that is given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping; ConstructorError, with its place, if a key is there twice."""
        keys = [key.value for key, _ in node.value]
        for number, (key, _) in enumerate(node.value):
            if key.value in keys[:number]:
                raise yaml.constructor.ConstructorError(
                    "while constructing a mapping", node.start_mark, f"found duplicate key {key.value}", key.start_mark
                )
        return super().construct_mapping(node, deep)


class _Loader(StrictLoader):
    """A strict loader with which every value stays a string, as a flag was typed."""

    yaml_implicit_resolvers: dict[str, Any] = {}


def _read_file(path: Path, *extending: Path) -> Iterator[tuple[Path | None, str, str, Any]]:
    """The values of the files that a file extends and of the file itself: file, section, key and value.

    Args:
        extending: the files that led to it, each of which extends the next.
    """
    where = f"{extending[-1]}, extends" if extending else "--conf"
    if path.resolve() in map(Path.resolve, extending):
        raise RecipeError(f"{where}: {path} extends itself; leave it out.")
    try:
        sections = yaml.load(path.read_text(encoding="utf-8-sig"), _Loader) or {}
    except FileNotFoundError:
        raise RecipeError(f"{where}: there is no file {path}.") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError(f"{path} is not a valid recipe: {' '.join(str(error).split())}; correct it.") from None
    form = RecipeError(f"{path} is not a valid recipe: write sections such as `train:` with `key: value` below.")
    if not isinstance(sections, dict):
        raise form
    others = sections.pop("extends", [])
    for other in others.split() if isinstance(others, str) else others:
        if not isinstance(other, str):
            raise RecipeError(f"{path}, extends: '{other}' is no file name; write one, or a list of them.")
        yield from _read_file(path.parent / other, *extending, path)
    for section, values in sections.items():
        if not isinstance(values or {}, dict):
            raise form
        for key, value in (values or {}).items():
            yield path, section, key, value


def parse_override(text: str) -> tuple[str, str, str]:
    """Splits `train.lr=1e-3` into section, key and value."""
    name, has_value, value = text.partition("=")
    section, _, key = name.partition(".")
    if not has_value or not key.strip():
        raise RecipeError(f"--set {text}: write SECTION.KEY=VALUE, such as train.max-update=1000.")
    return section, key.strip(), value.strip()


def _read_section(name: str, values: dict[str, Any]) -> Any:
    """A section as its dataclass; `flags` of those that have them are all keys that are not this pipeline's."""
    known = [one.name.replace("_", "-") for one in fields(TYPES[name])]
    flags: Flags = {}
    if "flags" in known:
        known.remove("flags")
        flags = {key: value for key, value in values.items() if key not in known}
    for key, value in flags.items():
        place = f"{name}.{key}"
        require(key not in RESERVED, place, f"is set by the pipeline: {RESERVED.get(key)}")
        require(not key.startswith("-"), place, "is a flag of fairseq; write it without dashes in front")
        require(isinstance(value, str), place, "is a list or a mapping; write its text in quotes")
    try:
        own = {key.replace("-", "_"): _typed(key, value) for key, value in values.items() if key not in flags}
        section = OmegaConf.to_object(OmegaConf.merge(TYPES[name], own))
    except Fault as fault:
        raise Fault(f"{name}.{fault.key}", fault) from None
    except OmegaConfBaseException as error:
        key = str(getattr(error, "full_key", "")).partition("[")[0].replace("_", "-")
        problems: dict[type, str] = {
            ConfigKeyError: f"is not an option{meant(key, known)}; the options are {', '.join(known)}",
            MissingMandatoryValue: "is missing; add it",
        }
        raise Fault(f"{name}.{key}", problems.get(type(error), str(error).splitlines()[0].rstrip("."))) from None
    # Not by OmegaConf, to which '???' and '${' mean something.
    return replace(section, flags=flags) if flags else section


def _typed(key: str, value: Any) -> Any:
    """A value as OmegaConf takes it: a list may be words, and --set writes lists and mappings as files do."""
    if not isinstance(value, str):
        return value
    if value[:1] in ("[", "{"):
        try:
            return yaml.load(value, _Loader)
        except yaml.YAMLError:
            raise Fault(key, f"'{value}' is not a valid list or mapping") from None
    return words(value) if key in LISTS else value


def _read_rows(values: dict[str, Any], origins: Origins) -> tuple[dict[str, list[str]], list[str]]:
    """The words of each experiment's row, and the names that run by default."""
    rows = dict(values)
    default = rows.pop("default", list(rows))
    for name, text in rows.items():
        place = f"experiments.{name}"
        try:
            rows[name] = shlex.split(text)
        except (ValueError, AttributeError) as error:
            raise Fault(place, f"'{text}' cannot be split into words ({error})") from None
        good = rows[name] and not rows[name][0].startswith("-")
        require(good, place, "starts with an encoding's name, such as 'shaw --clipping-distance 16'")
        parse_flags(rows[name][1:], where_written(origins["experiments", name], "experiments", name))
    names = words(default) if isinstance(default, str) else default
    require(rows, "experiments.default", "there is no experiment; add a row such as 'shaw-k16: shaw'")
    for name in names:
        require(isinstance(name, str), "experiments.default", f"'{name}' is not a name; write a list of names")
        problem = f"'{name}' is not an experiment{meant(name, rows)}; the experiments are {', '.join(rows)}"
        require(name in rows, "experiments.default", problem)
    return rows, names


def words(text: str) -> list[str]:
    """The words of a list with commas or spaces between them."""
    return text.replace(",", " ").split()


def find_recipe(name: str) -> Path:
    """The directory of a recipe: of one that comes with this package, by its name, or of any other, by its path."""
    packaged = ROOT / "posenc_experiments" / "recipes"  # in an installed wheel
    recipes = packaged if packaged.is_dir() else ROOT / "recipes"
    names = sorted(path.parent.name for path in recipes.glob("*/run.sh"))
    folder = recipes / name if name in names else Path(name).resolve()
    if not any(folder.glob("*.yaml")):
        near, all_names = meant(name, names), ", ".join(names)
        raise RecipeError(f"{name} is no recipe and no directory of one{near}; the recipes are {all_names}.")
    return folder


def conf_in(folder: Path, name: str, where: str) -> Path:
    """The path of a directory's recipe of this name; RecipeError, beginning with `where`, if there is none."""
    path = folder / f"{name}.yaml"
    if not path.is_file():
        names = sorted(one.stem for one in folder.glob("*.yaml"))
        raise RecipeError(f"{where}: {folder} has no {path.name}{meant(name, names)}; it has {', '.join(names)}.")
    return path


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Reads and checks a recipe.

    Args:
        path: the YAML file.
        overrides: values of `--set`, which override those of the file.

    Raises:
        RecipeError: a value is wrong or missing; names file, section and key.
    """
    values: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    origins: Origins = {}
    for origin, section, key, value in (*_read_file(path), *((None, *parse_override(text)) for text in overrides)):
        if section not in SECTIONS:
            where = where_written(origin, section, key)
            near = meant(section, SECTIONS)
            raise RecipeError(f"{where}: {section} is not a section{near}; the sections are {', '.join(SECTIONS)}.")
        key = key if section == "experiments" else key.replace("_", "-")  # either spelling
        if section == "corpus" and key in PATHS:
            if not isinstance(value, str):
                raise RecipeError(f"{where_written(origin, section, key)}: '{value}' is not a path; write one.")
            value = (Path() if origin is None else origin.parent) / value
        values[section][key], origins[section, key] = value, origin
    try:
        return _make_recipe(path, values, origins)
    except Fault as fault:
        section, _, key = fault.key.partition(".")
        where = where_written(origins.get((section, key), path), section, key)
        raise RecipeError(f"{where}: {fault}.") from None


def _make_recipe(path: Path, values: dict[str, dict[str, Any]], origins: Origins) -> Recipe:
    sections = {name: _read_section(name, values[name]) for name in TYPES}
    corpus, prepare, model, train, _, score = sections.values()
    for pair in model.pairs:
        problem = f"'{pair}' is not one of corpus.pairs, {', '.join(corpus.pairs)}"
        require(pair in corpus.pairs, "model.pairs", problem)
    for test in score.testsets:
        problem = f"'{test}' is not one of corpus.tests, {', '.join(corpus.tests)}"
        require(test in corpus.tests, "score.testsets", problem)
    for key in train.flags.keys() & model.flags.keys():
        other = where_written(origins["model", key], "model", key)
        raise Fault(f"train.{key}", f"is set by {other}, too: leave one out")
    problem = "needs documents, which only generated text has: leave it out"
    require(not prepare.context or corpus.generator, "prepare.context", problem)
    problem = "is not a whole number; batch-tokens needs it, to derive --update-freq"
    require(not train.batch_tokens or train.flags.get("max-tokens", "").isdecimal(), "train.max-tokens", problem)
    experiments, default = _read_rows(values["experiments"], origins)
    return Recipe(path, **sections, experiments=experiments, default_experiments=default, origins=origins)
