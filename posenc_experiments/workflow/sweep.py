"""Parses the values of `--experiments`: names of the recipe, and sweeps.

A value without flags is a list of names. A value with flags is a sweep: an encoding (or the name of an experiment,
which is extended), and flags whose values multiply: `shaw --clipping-distance 2,4 --dropout 0.1,0.3` is four
experiments. Commas and spaces within brackets or quotes belong to a value.
"""

import json
import math
import re
import string
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.flags import Flags, flag_words, parse_flags
from posenc_experiments.base.markers import fingerprint
from posenc_experiments.base.recipe import Recipe
from posenc_experiments.base.settings import words
from posenc_experiments.experiment.fairseq_flags import value_of

MOST = 1000  # the largest number of experiments in one sweep
BRACKETS = {"(": ")", "[": "]", "{": "}"}
Setting = tuple[str, frozenset[tuple[str, str]]]  # an encoding, and its flags with normalized values


def choose_experiments(recipe: Recipe, texts: Sequence[str]) -> tuple[Recipe, list[str]]:
    """Reads the values of `--experiments`.

    Returns:
        The recipe, with rows added for experiments of sweeps that the recipe has no row for, and the names of the
        experiments in the order given; if `texts` is empty, those of the recipe's `default`.

    Raises:
        RecipeError: a value cannot be parsed, or names an unknown experiment or encoding.
    """
    names = [] if texts else list(recipe.default_experiments)
    found = recipe
    for text in texts:
        if re.search(r"(?<!\S)-", text):
            found, swept = _sweep(recipe, found, text)
            names += swept
        else:
            names += _names(recipe, text)
    if not names:
        raise RecipeError(f"{recipe.where('experiments', 'default')}: name at least one experiment.")
    return found, list(dict.fromkeys(names))


def as_option(recipe: Recipe, name: str) -> str:
    """The value of `--experiments` for this experiment alone."""
    typed = recipe.origins.get(("experiments", name))
    return typed if isinstance(typed, str) else name


def _names(recipe: Recipe, text: str) -> list[str]:
    names = words(text)
    if not names:
        raise RecipeError("--experiments: name at least one.")
    for name in names:
        if name not in recipe.experiments:
            raise RecipeError(
                f"--experiments {name}: {recipe.path.name} has no such experiment; it has "
                f"{', '.join(recipe.experiments)}."
            )
    return names


def _sweep(conf: Recipe, found: Recipe, text: str) -> tuple[Recipe, list[str]]:
    """Adds the experiments of a sweep to `found`, and returns it with their names, which depend on `conf` alone."""
    shown = " ".join(text.split())
    where = f"--experiments '{shown if len(shown) <= 100 else f'{shown[:97]}...'}'"
    first, *words = filter(None, _split(text, string.whitespace, where))
    if first.startswith("-"):
        raise RecipeError(f"{where}: write an encoding, or a name of {conf.path.name}, before the flags.")
    heads = _values(first, where)
    for head in heads:
        _require_known(conf, head, where)
    flags = parse_flags(words, where)
    axes = [_values(value, f"{where}: --{flag}") if value else [value] for flag, value in flags.items()]
    count = len(heads) * math.prod(map(len, axes))
    if count > MOST:
        raise RecipeError(f"{where}: these are {count:,} experiments; a sweep may have at most {MOST:,}.")

    rows, origins, made = dict(found.experiments), dict(found.origins), dict[Setting, str]()
    for head, *values in product(heads, *axes):
        given = dict(zip(flags, values, strict=True))
        name, row = _name_and_row(conf, head, given)
        if rows.get(name, row) != row:
            name = f"{name}-{fingerprint(row)[:12]}"
        if (setting := _setting(row)) in made:
            raise RecipeError(f"{where}: {made[setting]} is in it twice; write each experiment once.")
        made[setting] = name
        if name not in conf.experiments:
            typed = {flag: _quoted(value) for flag, value in given.items()}
            origins["experiments", name] = " ".join([head, *flag_words(typed)])
        rows[name] = row
    return replace(found, experiments=rows, origins=origins), list(made.values())


def _require_known(conf: Recipe, head: str, where: str) -> None:
    """RecipeError if this is neither a name of the recipe nor an encoding."""
    if head in conf.experiments or any(row[0] == head for row in conf.experiments.values()):
        return
    # Imported here, because it imports torch, which would slow down --help.
    from fairseq_posenc.encodings import ENCODINGS

    if head not in ENCODINGS:
        raise RecipeError(
            f"{where}: '{head}' is neither an encoding nor an experiment of {conf.path.name}; the encodings are "
            f"{', '.join(ENCODINGS)}."
        )


def _name_and_row(conf: Recipe, head: str, given: Flags) -> tuple[str, list[str]]:
    """The name and row of an experiment: those of the recipe's row with the most of its flags, plus the other flags."""
    encoding, *words = conf.experiments.get(head, [head])
    flags = {**parse_flags(words, head), **given}
    wanted = _setting([encoding, *flag_words(flags)])[1]
    subsets = [
        (name, row) for name, row in conf.experiments.items() if row[0] == encoding and _setting(row)[1] <= wanted
    ]
    name, row = max(subsets, key=lambda one: len(_setting(one[1])[1]), default=(encoding, [encoding]))
    added = {flag: value for flag, value in flags.items() if (flag, _normalized(value)) not in _setting(row)[1]}
    for flag, value in added.items():
        word = re.sub(r"[^A-Za-z0-9._+-]+", "_", value).strip("_")
        name += f"-{flag}-{word}" if word else f"-{flag}"
    return name, [*row, *flag_words(added)]


def _setting(row: list[str]) -> Setting:
    """The encoding and normalized flags of a row, which are equal for rows that mean the same."""
    flags = parse_flags(row[1:], row[0])
    return row[0], frozenset((flag, _normalized(value)) for flag, value in flags.items())


def _normalized(value: str) -> str:
    """A value as text, which is equal for spellings of the same value."""
    # Python reads no integer with leading zeros, fairseq does.
    return json.dumps(value_of(re.sub(r"^([+-]?)0+(?=\d+$)", r"\1", value)), sort_keys=True)


def _values(text: str, where: str) -> list[str]:
    """The values of a list with commas, without quotes."""
    values = [_unquoted(piece) for piece in _split(text, ",", where)]
    if "" in values:
        raise RecipeError(f"{where}: '{text}' has an empty value; write values with one comma between two.")
    return values


def _split(text: str, separators: str, where: str) -> list[str]:
    """Splits a text at separators outside of brackets and quotes."""
    pieces, quote, closing = [""], "", list[str]()
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in BRACKETS:
            closing.append(BRACKETS[letter])
        elif letter in BRACKETS.values():
            if not closing or closing.pop() != letter:
                raise RecipeError(
                    f"{where}: '{letter}' closes no bracket; put a value with unpaired brackets in quotes."
                )
        elif letter in separators and not closing:
            pieces.append("")
            continue
        pieces[-1] += letter
    if quote or closing:
        raise RecipeError(f"{where}: {quote or closing[-1]} is missing; close every bracket and quote.")
    return pieces


def _unquoted(piece: str) -> str:
    """A value as fairseq gets it: without quotes, except in a value in brackets, where they belong to it."""
    return piece if piece[:1] in BRACKETS else re.sub(r"'([^']*)'|\"([^\"]*)\"", r"\1\2", piece)


def _quoted(value: str) -> str:
    """The inverse of `_unquoted`."""
    if not re.search(r"[\s,'\"()\[\]{}]", value):
        return value
    return f'"{value}"' if '"' not in value else "'" + value.replace("'", "'\"'\"'") + "'"
