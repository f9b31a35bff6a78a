"""`fairseq-posenc own`: experiments on the user's own text, with settings chosen by its size."""

import os
import re
import unicodedata
from pathlib import Path
from typing import Any

import click

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.read_recipe import find_recipe
from posenc_experiments.base.recipe import Fault, is_pair, require_name
from posenc_experiments.commands.run import find_conf, run_conf, run_options
from posenc_experiments.data.documents import find_documents, read_documents
from posenc_experiments.data.own_text import TRAIN, VALID, find_splits, read_set

# The smallest number of training pairs that each file of recipes/own is for.
SETTINGS = {500_000: "large", 50_000: "medium", 0: "small"}
SIZED = "small-sized"  # replaces small if --size asks for one of fairseq's sizes


def choose_settings(pairs: int, size: str | None) -> str:
    """The name of the recipe for this number of training pairs and for --size."""
    name = next(name for least, name in SETTINGS.items() if pairs >= least)
    return SIZED if name == "small" and size is not None else name


@click.command()
@click.option(
    "--text", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True, help="Its directory."
)
@click.option("--pair", required=True, help="Source and target language, such as en-de.")
@click.option("--name", help="Results go to output/NAME/PAIR.  [default: the directory's name]")
@click.option("--size", help="A model of one of fairseq's sizes, such as iwslt_de_en.  [default: the recipe's]")
@click.option(
    "--conf",
    help="small, medium or large, or a YAML file.  [default: by the number of training pairs: small below 50,000, "
    "medium below 500,000]",
)
@run_options
def main(
    text: Path,
    pair: str,
    name: str | None,
    size: str | None,
    conf: str | None,
    overrides: tuple[str, ...],
    **options: Any,
) -> None:
    """Compares encodings on your own text: prepares it, trains each experiment, translates, scores, and prints the
    table.

    \b
    fairseq-posenc own --text DIR --pair en-de

    DIR contains train.en and train.de, valid.en and valid.de, test.en and test.de (or several tests, whose names begin
    with test), one sentence per line. Files are plain or compressed as .gz; a .tsv (train.tsv: source, tab, target)
    replaces the two files of a set. DIR may also contain test.documents, the name of the document of each line of the
    test set: `compare` then lets the test set vary by its documents. Results go to output/NAME/PAIR; NAME is by default
    that of DIR. A changed file is noticed by its content. Give the same command again to resume what was stopped. The
    README of the recipe `own` has the settings for each size of text.
    """
    if not is_pair(pair):
        raise RecipeError(f"--pair: '{pair}' is not a pair of two languages such as en-de.")
    if options["source"] is not None:
        raise RecipeError("--source: leave it out; --text names the directory of your text.")
    text = Path(os.path.abspath(text))
    splits = find_splits(text, pair)
    name = name or text.name
    try:
        require_name(name)
    except Fault as error:
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        proposed = re.sub(r"[^a-z0-9._]+", "-", plain).strip("-._") or "mine"
        raise RecipeError(f"--name: {error}; give another one, such as --name {proposed}.") from None
    sets = {split: read_set(files) for split, files in splits.items()}
    chosen = choose_settings(0, size) if conf == "small" else conf or choose_settings(sets[TRAIN][0], size)
    path = find_conf(find_recipe("own"), chosen)
    tests = [split for split in splits if split not in (TRAIN, VALID)]
    for test in tests:
        if (documents := find_documents(text, test)) is not None:
            read_documents(documents, test, sets[test][0])
    checksums = ", ".join(f"{split}: {checksum}" for split, (_, checksum) in sets.items())
    corpus = {"name": name, "pairs": pair, "text": text, "tests": " ".join(tests), "downloads": f"{name}/text/{pair}"}
    derived = [f"corpus.{key}={value}" for key, value in {**corpus, "checksums": f"{{{checksums}}}"}.items()]
    derived += [f"model.size={size}"] if size is not None else []
    click.echo(f"{text}: {', '.join(f'{split} {count:,}' for split, (count, _) in sets.items())} pairs of {pair}")
    why = "--conf" if conf else "by the number of training pairs; --conf chooses others"
    click.echo(f"settings: {path} ({why})")
    run_conf(path, pair=pair, overrides=(*derived, *overrides), **options)
