"""Reads the results of experiments from their directories into one table.

It reads only files that the stages write: the description of the experiment, a summary of its training and, for each
test set, scores, hypotheses and references; never logs. It refuses a score whose files changed after scoring.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import file_hash, fingerprint, read_json
from posenc_experiments.base.run import prepared_text
from posenc_experiments.data.context import DOCUMENTS
from posenc_experiments.evaluation.differences import apart
from posenc_experiments.evaluation.kept import note, unpacked
from posenc_experiments.evaluation.metrics import BLEU, OWN, SACREBLEU_NAMES, TOKENIZED
from posenc_experiments.experiment.layout import (
    HISTORICAL,
    HYPOTHESES,
    REFERENCES,
    SACREBLEU,
    SCORED,
    SENTENCES,
    SOURCES,
    ExperimentDirectory,
    find_experiments,
)

if TYPE_CHECKING:
    import pandas as pd

SEAL = "seal"
#: what comparable results share
GROUP = ["corpus", "pair", "test"]
#: the name of a setting on a test set; the variant tells settings of one name apart
NAMED = [*GROUP, "setup", "name"]
#: what experiment.json records in `environment` that results depend on; today's records have no precision there
RECORDED = ("batch", "precision")
#: no score is as large; the sums of smaller ones are finite
LARGEST = 1e9
Result = Any  # a row of the table as itertuples() gives it
Number = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Kind = TypeVar("Kind")


class Prepare(msgspec.Struct):
    """What is read of the settings of the stage prepare."""

    train_max_words: int | None = None


class MadeFrom(msgspec.Struct):
    """What is read of all that the weights depend on."""

    prepare: Prepare = msgspec.field(default_factory=Prepare)


class About(msgspec.Struct):
    """What is read of experiment.json."""

    corpus: str
    pair: Annotated[str, msgspec.Meta(pattern="^[^-]+-[^-]+$")]
    name: str
    arch: str
    encoding: str
    flags: dict[str, str | int | float]
    seed: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
    fingerprint: str
    made_from: MadeFrom
    environment: dict[str, Any]
    setup: str | None = None


class Training(msgspec.Struct):
    """What is read of training.json; a training that diverged has a loss of NaN."""

    parameters: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)] | None = None
    words_per_second: Number | None = None
    valid_loss: float | None = None
    vocabulary: list[str] | None = None


class Score(msgspec.Struct):
    """A metric of a test set: what is read of its record."""

    name: str
    score: Number
    signature: str
    confidence_var: Number | None = None
    translation: dict[str, Any] | None = None
    reference: str | None = None
    sources: str | None = None
    hypotheses: str | None = None
    references: str | None = None
    sentences: Path | None = None  # the file of another tool's scores


def read_results(paths: Iterable[Path], data_dir: Path | None = None) -> pd.DataFrame:
    """Reads the results of experiments: a row for each experiment directory (a seed), test set and metric.

    Args:
        paths: experiment directories, archives of kept results, or directories that hold some of both at any depth.
        data_dir: a recipe's --data-dir; its prepared text replaces sources and references that the directories lack.

    Returns:
        A table with the columns

        - directory, corpus, pair, setup (a name for all settings but the encoding, or None), name, arch, encoding,
          flags (as typed), seed, and a column for each flag, such as --clipping-distance;
        - variant (the settings that distinguish it from others of its name in this table; empty if there are none);
        - test, metric (as tables name it; a test set's first is BLEU), score, interval (half the width of the 95 %
          bootstrap interval), signature, sentences (the file of another tool's scores by sentence);
        - parameters, words_per_second, valid_loss, vocabulary (SHA-256 of the dictionaries);
        - made_from (all that the weights depend on but the seed), depends_on (the same for the translations: also the
          search, batch and precision), fingerprint (of made_from), environment (versions of code and
          libraries, and the device), train_max_words (the longest source of the training; None without a limit);
        - files (of the sources, references and translations, by kind), source_hash, reference_hash, reference (how it
          compares with SacreBLEU's), verified (whether the translations and references are there, and as they were when
          they were scored).

        Experiments are in the order of the paths given, those below one path in natural order.

    Raises:
        RecipeError: a directory holds no score, or a file in it is damaged.
    """
    # Here, because stages import this file, and --help and --dry-run need not wait for it.
    import pandas as pd

    rows: dict[Path, list[dict[str, Any]]] = {}  # by the experiment's real path
    for path in paths:
        places = [place for place in (path, unpacked(path)) if place.is_dir()]
        if not places:
            raise RecipeError(f"{path} is not a directory: name experiment directories, or one that holds them.")
        experiments = sorted((one for place in places for one in find_experiments(place)), key=_natural)
        for one in experiments:
            if one.resolve() not in rows:
                rows[one.resolve()] = list(read_experiment(one, data_dir))
        if not any(rows[one.resolve()] for one in experiments):
            raise RecipeError(f"{path} holds no scored experiment: run the recipe's stages up to score.")
    if unscored := [str(one) for one, own_rows in rows.items() if not own_rows]:
        note(f"left out, because they have no scores: {', '.join(unscored)}.")
    table = pd.DataFrame([row for own_rows in rows.values() for row in own_rows], dtype=object)
    # A cell without a value is None, but NaN in columns of numbers.
    numbers = {"score": float, "interval": float, "words_per_second": float, "valid_loss": float}
    table = table.where(table.notna(), None).astype({**numbers, "seed": int, "verified": bool})
    for _, seeds in table.groupby(["corpus", "pair", "setup", "name", "fingerprint"], sort=False, dropna=False):
        for directory, own in seeds.groupby("directory", sort=False):
            if lacking := sorted(set(seeds["test"]) - set(own["test"])):
                note(f"{directory} has no scores of {', '.join(lacking)}, which another seed has.")
    return table.assign(variant=_variants(table))


def _variants(results: pd.DataFrame) -> pd.Series:
    """The variant of each result."""
    hashes = results["depends_on"].map(fingerprint)
    variants = hashes.map(lambda _: "")
    for _, same in results.groupby(NAMED, sort=False, dropna=False):
        kinds = dict(zip(hashes[same.index], same["depends_on"], strict=True))
        labels = dict(zip(kinds, apart(list(kinds.values())), strict=True))
        variants[same.index] = hashes[same.index].map(labels)
    return variants


def bleu_results(results: pd.DataFrame) -> list[Result]:
    """The row of BLEU of each experiment and test set."""
    return list(results[results["metric"] == BLEU].itertuples())


def _natural(path: Path) -> list[list[str | float]]:
    """A key for natural sorting: `k2` before `k16`, `dropout-0.15` before `dropout-0.2`."""
    pieces = [re.split(r"([0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)", part) for part in path.parts]
    return [[float(piece) if number % 2 else piece for number, piece in enumerate(one)] for one in pieces]


def _checked(value: Any, kind: type[Kind], path: Path) -> Kind:
    """The fields of a record that are read, with their types; RecipeError, naming file and field, if one is wrong."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise RecipeError(f"{path} is damaged, or of an old version ({error}): run its recipe again.") from None


def read_experiment(directory: Path, data_dir: Path | None = None, own_only: bool = False) -> Iterator[dict[str, Any]]:
    """The rows of `read_results` for one experiment, without `variant`; of other tools' scores unless `own_only`."""
    files = ExperimentDirectory(directory)
    about = read_json(files.about)
    made_from = _checked(about, About, files.about).made_from
    training = _checked(read_json(files.summary), Training, files.summary) if files.summary.is_file() else Training()
    settings = {
        "directory": directory,
        **{key: about.get(key) for key in About.__struct_fields__},
        "flags": " ".join(f"--{name} {value}".rstrip() for name, value in about["flags"].items()),  # as typed
        **{f"--{name}": value for name, value in about["flags"].items()},
        **msgspec.structs.asdict(training),
        "train_max_words": made_from.prepare.train_max_words,
    }
    for path in sorted(files.test_files([SACREBLEU]), key=_natural):
        test = path.name.removesuffix(f".{SACREBLEU}")
        if re.search(r"\s", test):  # as the names of parts of test sets and of all of them have
            raise RecipeError(f"{path}: a test set's name has no blanks: rename its files.")
        texts = {kind: files.test_file(test, kind) for kind in SCORED}
        for kind, language in zip((SOURCES, REFERENCES), about["pair"].split("-"), strict=True):
            if data_dir is not None and not texts[kind].is_file():
                texts[kind] = prepared_text(data_dir, about["corpus"], about["pair"], f"{test}.{language}")
        metrics = _read_metrics_of(files, test, own_only)
        texts[DOCUMENTS] = files.test_file(test, DOCUMENTS)
        if data_dir is not None and not texts[DOCUMENTS].is_file():
            texts[DOCUMENTS] = prepared_text(data_dir, about["corpus"], about["pair"], f"{test}.{DOCUMENTS}")
        own = [metrics[name] for name in (TOKENIZED, BLEU) if name in metrics]  # of two files of the stage score
        hashes = {kind: [_hash_of(texts[kind], kind, one) for one in own][-1] for kind in SCORED}
        # Results also depend on the search and on what is recorded beside the fingerprint.
        others: dict[str, Any] = {"translation": metrics[BLEU].translation}
        others |= {name: about["environment"].get(name) for name in RECORDED}
        known = {key: value for key, value in others.items() if value is not None}
        of_test = {
            "depends_on": about["made_from"] | known,
            "reference": metrics[BLEU].reference,
            "files": texts,
            "reference_hash": hashes[REFERENCES],
            "source_hash": hashes[SOURCES],
            "verified": all(texts[kind].is_file() for kind in (HYPOTHESES, REFERENCES)),
        }
        for name, metric in metrics.items():
            numbers = {"score": metric.score, "interval": metric.confidence_var}
            of_metric = {"signature": metric.signature, "sentences": metric.sentences}
            yield {**settings, "test": test, "metric": name, **numbers, **of_metric, **of_test}


def _read_metrics_of(files: ExperimentDirectory, test: str, own_only: bool) -> dict[str, Score]:
    """Reads the metrics of a test set by their names in tables."""
    path, historical = files.test_file(test, SACREBLEU), files.test_file(test, HISTORICAL)
    scores = _read_metrics(path)
    if BLEU not in scores:
        raise RecipeError(f"{path} is damaged, or of an old version (it has no BLEU): run the stage score again.")
    metrics = {ours: scores[name] for name, ours in SACREBLEU_NAMES.items() if name in scores}
    if historical.is_file():
        metrics[TOKENIZED] = next(iter(_read_metrics(historical).values()))
    for name, path in ({} if own_only else _other_scores(files, test)).items():
        if name in OWN:
            raise RecipeError(f"{path}: '{name}' is a metric of the stage score: give the file another name.")
        if not re.fullmatch(r"\S+", name):
            raise RecipeError(f"{path}: '{name}' is no name of a metric without blanks: give the file another name.")
        signature, values = read_sentence_scores(path)
        translations = files.test_file(test, HYPOTHESES)
        if translations.is_file() and len(values) != (lines := len(read_lines(translations))):
            raise RecipeError(
                f"{path} has {len(values):,} scores, and {translations} {lines:,} lines: score them again."
            )
        metrics[name] = Score(name, statistics.fmean(values), signature, sentences=path)
    return metrics


def _other_scores(files: ExperimentDirectory, test: str) -> dict[str, Path]:
    """The files of other tools' scores of a test set by metric; with `test.b` too, `test.b.COMET.scores` is its own."""
    kinds = (SACREBLEU, HYPOTHESES)
    tests = {path.name.removesuffix(f".{kind}") for kind in kinds for path in files.test_files([kind])}
    paths = {}
    for path in sorted(files.test_files([SENTENCES])):
        name = path.name.removesuffix(f".{SENTENCES}")
        if test == max((one for one in tests if name.startswith(f"{one}.")), key=len, default=None):
            paths[name.removeprefix(f"{test}.")] = path
    return paths


def read_sentence_scores(path: Path) -> tuple[str, list[float]]:
    """Reads a metric that another tool computed: its signature, after a `#`, and the score of each sentence.

    Raises:
        RecipeError: a line is missing, or is not what it should be.
    """
    first, *lines = read_lines(path)
    signature = first.removeprefix("#").strip()
    try:
        values = [float(line) for line in lines]
    except ValueError:
        values = []
    if not first.startswith("#") or not signature or not values or not all(abs(value) <= LARGEST for value in values):
        raise RecipeError(
            f"{path} is damaged: line 1 must be '# ' and the metric's signature, such as its model and version, and "
            "each line after it one number."
        )
    return signature, values


def _hash_of(file: Path, kind: str, score: Score) -> str | None:
    """The SHA-256 of a scored file, as the score records it; RecipeError if the file changed since."""
    recorded: str | None = getattr(score, SCORED[kind])
    current = file_hash(file) if file.is_file() else recorded
    if recorded not in (None, current):
        fix = "run the stage score again" if file.suffix == f".{kind}" else "prepare its recipe again"  # in --data-dir
        raise RecipeError(f"{file} is not the file that was scored (it changed since): {fix}.")
    return current


def seal(row: Mapping[str, Any]) -> str:
    """The hash of a metric's record, which the record holds as SEAL, so that an edited number is noticed."""
    return fingerprint({key: value for key, value in row.items() if key != SEAL})


def _read_metrics(path: Path) -> dict[str, Score]:
    """Reads the metrics that the stage score wrote, by their names."""
    read = read_json(path)
    rows = [row for row in read if isinstance(row, dict)] if isinstance(read, list) else []
    if not rows or not all(row.get(SEAL) == seal(row) for row in rows):
        raise RecipeError(f"{path} is not what the stage score wrote (it changed since): run the stage score again.")
    return {row.name: row for row in _checked(rows, list[Score], path)}


def read_test_texts(result: Result) -> list[list[str]]:
    """The lines of the sources, references and hypotheses of a result's test set."""
    return read_parallel(*(result.files[kind] for kind in (SOURCES, REFERENCES, HYPOTHESES)))


def read_parallel(*files: Path) -> list[list[str]]:
    """The lines of files that belong together line by line.

    Raises:
        RecipeError: a file is missing, or they have different numbers of lines.
    """
    texts = [read_lines(file) for file in files]
    if len(set(map(len, texts))) > 1:
        counts = " and ".join(f"{file} {len(lines):,}" for file, lines in zip(files, texts, strict=True))
        raise RecipeError(
            f"These files have different numbers of lines ({counts}): run the stages translate and score."
        )
    return texts


def read_lines(path: Path) -> list[str]:
    """The lines of a file, as SacreBLEU reads them; RecipeError if it cannot be read."""
    try:  # only newlines end lines
        return [line.rstrip() for line in path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")]
    except FileNotFoundError:
        raise RecipeError(
            f"{path} is missing: run the stages translate and score again; `compare` also takes sources and references "
            "from --data-dir, where the stages download,prepare of the recipe put them."
        ) from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is not UTF-8 ({error}): save it as UTF-8, or make it again.") from None
