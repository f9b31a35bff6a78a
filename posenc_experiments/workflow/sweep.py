"""Parses the values of `--experiments`: names of the recipe, and sweeps.

A value without flags is a list of names. A value with flags is a sweep: an encoding (or the name of an experiment,
which is extended), and flags whose values multiply: `shaw --clipping-distance 2,4 --dropout 0.1,0.3` is four
experiments. Commas and spaces within brackets or quotes belong to a value.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from posenc_experiments.base.errors import RecipeError, meant
from posenc_experiments.base.files import fingerprint
from posenc_experiments.base.flags import Flags, flag_words, parse_flags
from posenc_experiments.base.read_recipe import words
from posenc_experiments.base.recipe import Recipe
from posenc_experiments.experiment.fairseq_flags import normalized

#: text whose commas and spaces belong to a value: in brackets, which may hold others of their kind, or in quotes
HELD = r"\((?:[^()]|\([^()]*\))*\)|\[(?:[^\[\]]|\[[^\[\]]*\])*\]|\{(?:[^{}]|\{[^{}]*\})*\}|'[^']*'|\"[^\"]*\""


def choose_experiments(recipe: Recipe, texts: Sequence[str]) -> tuple[Recipe, list[str]]:
    """Reads the values of `--experiments`.

    Returns:
        The recipe, with rows added for experiments of sweeps that the recipe has no row for, and the names of the
        experiments in the order given; if `texts` is empty, those of the recipe's `default`.

    Raises:
        RecipeError: a value cannot be parsed, or names an unknown experiment.
    """
    names = [] if texts else list(recipe.default_experiments)
    rows, origins = dict(recipe.experiments), dict(recipe.origins)
    for text in texts:
        if not re.search(r"(?<!\S)-", text):
            names += _names(recipe, text)
            continue
        for name, row, typed in _sweep(recipe, text):
            # The values of two experiments may differ only in signs that their names cannot have.
            unique = name if rows.get(name, row) == row else f"{name}-{fingerprint(row)[:12]}"
            if unique not in recipe.experiments:
                rows[unique], origins["experiments", unique] = row, typed
            names.append(unique)
    if not names:
        raise RecipeError(f"--experiments: name at least one; {recipe.path.name} has {', '.join(recipe.experiments)}.")
    return replace(recipe, experiments=rows, origins=origins), list(dict.fromkeys(names))


def _names(recipe: Recipe, text: str) -> list[str]:
    names = words(text)
    for name in names:
        if name not in recipe.experiments:
            raise RecipeError(
                f"--experiments {name}: {recipe.path.name} has no such experiment{meant(name, recipe.experiments)}; it "
                f"has {', '.join(recipe.experiments)}."
            )
    return names


def _sweep(recipe: Recipe, text: str) -> Iterator[tuple[str, list[str], str]]:
    """The name and the row of each experiment of a sweep, and the text that names it alone."""
    first, *words = re.findall(rf"(?:{HELD}|\S)+", text)
    where = f"--experiments '{text}'"
    if first.startswith("-"):
        raise RecipeError(f"{where}: write an encoding, or a name of {recipe.path.name}, before the flags.")
    flags = parse_flags(words, where)
    for head, *values in product(_values(first), *map(_values, flags.values())):
        typed = dict(zip(flags, values, strict=True))
        name, row = _name_and_row(recipe, head, {flag: _unquoted(value) for flag, value in typed.items()})
        yield name, row, " ".join([head, *flag_words(typed)])


def _name_and_row(recipe: Recipe, head: str, given: Flags) -> tuple[str, list[str]]:
    """The name and row of an experiment: those of the recipe's row with the most of its flags, plus the other flags."""
    encoding, *words = recipe.experiments.get(head, [head])
    flags = {**parse_flags(words, head), **given}
    rows = [(name, row, parse_flags(row[1:], name)) for name, row in recipe.experiments.items() if row[0] == encoding]
    parts = [one for one in rows if _flag_items(one[2]) <= _flag_items(flags)]
    name, row, known = max(parts, key=lambda one: len(one[2]), default=(encoding, [encoding], Flags()))
    added = {flag: value for flag, value in flags.items() if flag not in known}
    for flag, value in added.items():
        word = re.sub(r"[^A-Za-z0-9._+-]+", "_", value).strip("_")
        name += f"-{flag}-{word}" if word else f"-{flag}"
    return name, [*row, *flag_words(added)]


def _flag_items(flags: Flags) -> set[tuple[str, str]]:
    """Flags with their values as JSON, in which `true`, of a flag without a value, differs from 1."""
    return {(name, json.dumps(value, sort_keys=True)) for name, value in normalized(flags).items()}


def _values(text: str) -> list[str]:
    """The values of a list with commas; one empty value of an empty text, as of a flag without a value."""
    return re.findall(rf"(?:{HELD}|[^,])+", text) or [""]


def _unquoted(value: str) -> str:
    """A value as fairseq gets it: without quotes, except in a value in brackets, where they belong to it."""
    return value if value[:1] in ("(", "[", "{") else re.sub(r"'([^']*)'|\"([^\"]*)\"", r"\1\2", value)
