"""The data that a run trains on: what it is made from, the directories that this names, and its sentences' lengths."""

import importlib.metadata
import struct
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posenc_experiments.base.done import is_done
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import file_hash, fingerprint, not_default, read_json
from posenc_experiments.base.languages import is_unspaced, unit
from posenc_experiments.base.recipe import Prepare
from posenc_experiments.base.run import Run
from posenc_experiments.data import subwords
from posenc_experiments.data.sources import all_splits, pair_tests, wanted_archives, wanted_sources
from posenc_experiments.data.subwords import Subwords

# The index of fairseq's MMapIndexedDataset: magic, version, code of the data type, number of sentences; then the
# sentences' sizes as int32.
HEADER, MAGIC = struct.Struct("<9sQBQ"), b"MMIDIDX\0\0"


#: the versions of the libraries that made all text so far; fingerprints have only others, so that they stay as they are
TEXT_LIBRARIES = {"sacremoses": "0.2.0", "sentencepiece": "0.2.3", "subword-nmt": "0.3.8"}


def text_libraries(settings: Prepare) -> dict[str, str]:
    """The versions of the libraries that split, change and join the text of a model."""
    changing = ["sacremoses"] if settings.normalize_punctuation else []
    names = {*subwords.METHODS[settings.subwords].libraries, *changing}
    return {name: importlib.metadata.version(name) for name in sorted(names)}


def contents(run: Run, splits: Iterable[str]) -> list[dict[str, Any]]:
    """What the text of each split is: by language, the checksum of each archive, and the member's name.

    For generated text, it is the hash of the generator's code and options; for the user's own, that of the text.
    """
    corpus = run.recipe.corpus
    if corpus.generator is not None:
        made = _generation(corpus.generator, corpus.generator_options)
        return [{"generator": made, "split": split} for split in splits]
    if corpus.text is not None:
        return [{"text": corpus.checksums.get(split)} for split in splits]
    rows, archives = wanted_sources(run), wanted_archives(run)

    def identities(split: str, side: str) -> list[str]:
        chosen = [row for row in rows if (row.split, row.language) == (split, side)]
        # Of an archive's rows, only the first counts, so that adding a mirror does not change the identity.
        return [" ".join(filter(None, [archives[row.archive][0].checksum, row.member])) for row in chosen]

    return [{side: identities(split, side) for side in (run.source, run.target)} for split in splits]


@cache
def _generation(generator: Path, options: str) -> str:
    # The generator may import modules from its own directory.
    folder = generator.parent
    code = {str(path.relative_to(folder)): file_hash(path) for path in sorted(folder.rglob("*.py"))}
    return fingerprint([code, options])


def changed_settings(run: Run) -> dict[str, Any]:
    """The settings of `prepare` and versions of libraries that differ from their defaults, for fingerprints."""
    changed = not_default(run.recipe.prepare)
    changed |= dict(text_libraries(run.recipe.prepare).items() - TEXT_LIBRARIES.items())
    if is_unspaced(run.source) and changed.keys() & {"train_min_words", "train_max_words"}:
        changed["length_unit"] = unit(run.source)
    return changed


def inputs(run: Run) -> str:
    """The fingerprint of all that prepared data depends on: text, pair, splits and settings."""
    corpus = run.recipe.corpus
    splits = [corpus.train_splits(run.pair), corpus.valid, pair_tests(run)]
    return fingerprint([contents(run, dict.fromkeys(all_splits(run))), run.pair, splits, changed_settings(run)])


def test_inputs(run: Run) -> str:
    """The fingerprint of the test sets: their text, and the length that they are cut to for the model."""
    return fingerprint([contents(run, pair_tests(run)), run.recipe.prepare.eval_max_tokens])


def download_dir(run: Run) -> Path:
    """The unchanged files of the corpus; archives are shared by all pairs and by recipes that name one directory."""
    corpus = run.recipe.corpus
    directory = run.data_dir / corpus.downloads
    if corpus.sources is not None:
        return directory
    made = corpus.checksums if corpus.text is not None else contents(run, [""])[0]
    return directory.with_name(f"{directory.name}-{fingerprint(made)[:8]}")


def prepared_dir(run: Run) -> Path:
    """The prepared data: subwords, test sets as TEST.LANGUAGE, `binarized/`, and the counts."""
    return run.pair_dir / f"prepared-{inputs(run)[:8]}"


def binarized_dir(run: Run) -> Path:
    """The data for fairseq's commands."""
    return prepared_dir(run) / "binarized"


def is_prepared(run: Run) -> bool:
    """Whether the data is prepared with the current settings."""
    return is_done(prepared_dir(run), "prepare")


def require(run: Run) -> None:
    """RecipeError unless the data is prepared with the current settings."""
    if not is_prepared(run):
        raise RecipeError(
            f"The data in {run.pair_dir} is not prepared (or its settings changed since): run the "
            f"stages download..prepare."
        )


def dictionaries(binarized: Path, *languages: str) -> list[Path]:
    """fairseq's dictionaries of these languages in a directory of binarized data."""
    return [binarized / f"dict.{language}.txt" for language in languages]


def vocabulary(binarized: Path, *languages: str) -> list[str]:
    """The checksums of these dictionaries."""
    return [file_hash(path) for path in dictionaries(binarized, *languages)]


def subwords_of(binarized: Path, language: str) -> Subwords:
    """The subwords that a directory of binarized data was made with; none, if the stage prepare did not make it.

    Raises:
        RecipeError: the record of the prepared data is damaged.
    """
    record = binarized.parent / "prepare.json"
    if not record.is_file():
        return Subwords(binarized, language, Prepare(subwords="none"))
    try:
        settings = Prepare(**read_json(record)["settings"])
        return subwords.load(record.parent, language, settings)
    except (KeyError, TypeError, OSError) as error:
        raise RecipeError(f"The subwords of {record} cannot be loaded ({error}): prepare the data again.") from None


def read_sizes(path: Path) -> NDArray[np.int32]:
    """The number of tokens of each sentence of a binarized file, </s> included; RecipeError if the file is damaged."""
    with open(path, "rb") as index:
        head = index.read(HEADER.size)
        magic, _, _, sentences = HEADER.unpack(head) if len(head) == HEADER.size else (b"", 0, 0, 0)
        sizes = np.fromfile(index, dtype="<i4", count=sentences)
    if magic != MAGIC or len(sizes) != sentences:
        raise RecipeError(f"{path} is damaged: delete it, and run the stage prepare again.")
    return sizes


def subset(run: Run, test: str) -> str:
    """fairseq's name for a test set: test, test1, test2..."""
    index = pair_tests(run).index(test)
    return f"test{index or ''}"


def index_file(binarized: Path, split: str, pair: str, side: str) -> Path:
    """fairseq's index file of a split (train, valid, test, test1...) in one of the pair's languages."""
    return binarized / f"{split}.{pair}.{side}.idx"


def longest(run: Run, split: str) -> tuple[int, int]:
    """The numbers of tokens of the longest source and of the longest target sentence, </s> included."""
    files = [index_file(binarized_dir(run), split, run.pair, side) for side in (run.source, run.target)]
    source, target = (int(read_sizes(path).max(initial=0)) for path in files)
    return source, target
