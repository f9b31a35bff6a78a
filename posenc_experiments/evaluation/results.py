"""Reads scores of experiments from their directories.

It reads only files that the stages write: the description of the experiment, a summary of its training and, for each
test set, scores, hypotheses and references; never logs. It refuses a score whose files changed after scoring.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import NoneType
from typing import Any

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import file_hash, fingerprint, read_json
from posenc_experiments.base.run import prepared_dir
from posenc_experiments.data import text
from posenc_experiments.evaluation.metrics import BLEU, SACREBLEU_NAMES, TOKENIZED
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

SEAL = "seal"


@dataclass(frozen=True)
class Metric:
    """One metric's score."""

    score: float
    interval: float | None  # half the width of the 95 % bootstrap interval; None if it was not computed
    signature: str
    reference: str | None = None  # result of the comparison with SacreBLEU's test set, if the recipe names one
    hypotheses: str | None = None  # SHA-256 of the scored file; None in older runs
    references: str | None = None  # SHA-256 of the reference; None in older runs
    sources: str | None = None  # SHA-256 of the source; None in older runs
    sealed: bool = False  # whether it records a hash of itself, which then is right
    translation: dict[str, Any] | None = None  # settings of averaging and search that are not defaults
    sentences: Path | None = None  # the file of its scores by sentence, if it is not a metric of SacreBLEU

    @property
    def lowercased(self) -> bool:
        return "|case:lc|" in self.signature


@dataclass(frozen=True)
class Score:
    """One experiment (one seed) on one test set."""

    directory: Path
    corpus: str
    pair: str
    test: str
    name: str
    arch: str
    encoding: str
    flags: dict[str, Any]
    seed: int
    metrics: dict[str, Metric]  # by their names in tables; BLEU is always included
    reference_file: Path  # in the directory or in prepared data
    parameters: int | None
    words_per_second: float | None
    valid_loss: float | None
    vocabulary: list[str] | None = None  # SHA-256 of the dictionaries of its training; None in older runs
    setup: str | None = None  # model.setup, such as shaw-base: a name for all settings but the encoding
    made_from: dict[str, Any] | None = None  # all that the result depends on but the seed; None in older runs
    fingerprint: str | None = None  # of made_from, as the training recorded it
    environment: dict[str, Any] = field(default_factory=dict)  # versions of code and libraries, for information
    references: str | None = None  # SHA-256; None if the scores do not record it and the file is missing
    sources: str | None = None  # the same of the source
    verified: bool = False  # whether hypotheses and references exist, and they and the score are as they were recorded
    parts: tuple[Score, ...] = ()  # the scores of the single test sets, if it is of several together

    @property
    def bleu(self) -> Metric:
        return self.metrics[BLEU]

    @property
    def source_language(self) -> str:
        return self.pair.split("-")[0]

    @property
    def train_max_words(self) -> int | None:
        """prepare.train-max-words: the longest source of the training, by `length`; None without a limit."""
        return ((self.made_from or {}).get("prepare") or {}).get("train_max_words")

    @property
    def flag_words(self) -> str:
        return " ".join(f"--{name} {value}".rstrip() for name, value in self.flags.items())

    def file(self, kind: str) -> Path:
        """The file of this kind for the test set."""
        if kind == REFERENCES:
            return self.reference_file
        return ExperimentDirectory(self.directory).test_file(self.test, kind)

    @property
    def setting(self) -> tuple[str | None, ...]:
        """The setting and test set, which are equal for all seeds."""
        return (self.corpus, self.pair, self.test, self.setup, self.arch, json.dumps(self.flags, sort_keys=True))

    @property
    def long_name(self) -> str:
        return f"{self.setup} {self.name}" if self.setup else self.name


def read_experiments(paths: Iterable[Path], data_dir: Path | None = None) -> list[Score]:
    """Reads the scores of experiments.

    Args:
        paths: experiment directories, or directories that hold some at any depth.
        data_dir: a recipe's --data-dir; its prepared text replaces references that are missing in the directories.

    Returns:
        The scores of the named experiment directories, in the order given, then of those found in other directories,
        in natural order of their paths.

    Raises:
        RecipeError: a directory holds no score, or a file in it is damaged.
    """
    scores: dict[Path, list[Score]] = {}  # by the experiment's real path
    named: list[Path] = []
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise RecipeError(f"{path} is not a directory: name experiment directories, or one that holds them.")
        experiments = find_experiments(path)
        (named if experiments == [path] else found).extend(experiments)
        for one in experiments:
            if one.resolve() not in scores:
                scores[one.resolve()] = _read_experiment(one, data_dir)
        if not any(scores[one.resolve()] for one in experiments):
            raise RecipeError(f"{path} holds no scored experiment: run the recipe's stages up to score.")
    ordered = dict.fromkeys(one.resolve() for one in [*named, *sorted(found, key=_natural_path)])
    return [score for one in ordered for score in scores[one]]


def _natural_path(path: Path) -> list[list[str | float]]:
    return [_natural(part) for part in path.parts]


def _natural(name: str) -> list[str | float]:
    """A key for natural sorting: `k2` before `k16`, `dropout-0.15` before `dropout-0.2`."""
    pieces = re.split(r"([0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)", name)
    return [float(piece) if number % 2 else piece for number, piece in enumerate(pieces)]


def _read_object(path: Path, types: Mapping[str, Any]) -> dict[str, Any]:
    """Reads a JSON object and checks its values by `types`; values that may be missing have a type that allows None."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise RecipeError(f"{path} is damaged (it holds no JSON object): run its recipe again.")
    for key, wanted in types.items():
        found = value.get(key)
        if not isinstance(found, wanted) or (isinstance(found, float) and not math.isfinite(found)):
            problem = f"its {key!r} is {found!r}" if key in value else f"it lacks {key!r}"
            raise RecipeError(f"{path} is damaged ({problem}): run its recipe again.")
    return value


def _read_experiment(directory: Path, data_dir: Path | None) -> list[Score]:
    words = dict.fromkeys(("corpus", "pair", "name", "arch", "encoding"), str)
    types: dict[str, Any] = {**words, "flags": dict, "seed": int, "setup": str | None}
    types |= {"made_from": dict | None, "fingerprint": str | None, "environment": dict | None}
    files = ExperimentDirectory(directory)
    about = _read_object(files.about, types)
    types = dict.fromkeys(("parameters", "words_per_second", "valid_loss"), int | float | None)
    types["vocabulary"] = list | None
    training: dict[str, Any] = dict.fromkeys(types)
    if files.summary.is_file():
        training |= _read_object(files.summary, types)
    scores = []
    for path in sorted(files.test_files([SACREBLEU]), key=_natural_path):
        test = path.name.removesuffix(f".{SACREBLEU}")
        metrics = _read_metrics_of(files, test)
        first = metrics[BLEU]
        texts = {kind: files.test_file(test, kind) for kind in SCORED}
        if data_dir is not None and not texts[REFERENCES].is_file():
            target = about["pair"].split("-")[-1]
            texts[REFERENCES] = prepared_dir(data_dir, about["corpus"], about["pair"]) / f"{test}.{target}"
        hashes = {kind: _verified_hash(file, kind, metrics) for kind, file in texts.items()}
        require_equal_counts(texts[HYPOTHESES], texts[REFERENCES])
        made_from, environment = about.get("made_from"), about.get("environment") or {}
        # Results also depend on the search, and on a batch that the hardware changed; the fingerprint has neither.
        others = {"translation": first.translation, "batch": environment.get("batch")}
        if made_from is not None:
            made_from = {**made_from, **{key: value for key, value in others.items() if value is not None}}
        scores.append(
            Score(
                directory=directory,
                test=test,
                **{key: about[key] for key in (*words, "flags", "seed")},
                setup=about.get("setup"),
                made_from=made_from,
                fingerprint=about.get("fingerprint"),
                environment=environment,
                metrics=metrics,
                **{key: training[key] for key in types},
                references=hashes[REFERENCES][0],
                sources=hashes[SOURCES][0],
                verified=all(one.sealed for one in metrics.values() if one.sentences is None)
                and all(hashes[kind][1] for kind in (HYPOTHESES, REFERENCES)),
                reference_file=texts[REFERENCES],
            )
        )
    return scores


def _read_metrics_of(files: ExperimentDirectory, test: str) -> dict[str, Metric]:
    """Reads the metrics of a test set, by their names in tables."""
    scores, historical = files.test_file(test, SACREBLEU), files.test_file(test, HISTORICAL)
    found = _read_metrics(scores)
    if BLEU not in found:
        raise RecipeError(f"{scores} holds no BLEU: run the stage score again.")
    metrics = {BLEU: found[BLEU]}
    metrics |= {ours: found[name] for name, ours in SACREBLEU_NAMES.items() if name in found}
    if historical.is_file():
        metrics[TOKENIZED] = next(iter(_read_metrics(historical).values()))
    for path in sorted(files.directory.glob(f"{test}.*.{SENTENCES}")):
        signature, values = read_sentence_scores(path)
        name = path.name.removeprefix(f"{test}.").removesuffix(f".{SENTENCES}")
        translations = files.test_file(test, HYPOTHESES)
        if translations.is_file() and len(values) != (lines := len(read_lines(translations))):
            raise RecipeError(
                f"{path} has {len(values):,} scores, and {translations} {lines:,} lines: score them again."
            )
        if name in metrics or name == TOKENIZED:
            raise RecipeError(f"{path}: '{name}' is a metric of the stage score: give the file another name.")
        metrics[name] = Metric(statistics.fmean(values), None, signature, sentences=path)
    return metrics


def read_sentence_scores(path: Path) -> tuple[str, list[float]]:
    """Reads a metric that another tool computed: its signature, after a `#`, and the score of each sentence.

    Raises:
        RecipeError: a line is missing, or is not what it should be.
    """
    first, *lines = read_lines(path)
    if not first.removeprefix("#").strip() or not first.startswith("#"):
        raise RecipeError(f"{path}: line 1 must be '# ' and the metric's signature, such as its model and version.")
    values = []
    for number, line in enumerate(lines, 2):
        try:
            values.append(_finite(float(line)))
        except ValueError:
            raise RecipeError(
                f"{path}: line {number} is '{line}', not a number: after the signature, write one score a line."
            ) from None
    if not values:
        raise RecipeError(f"{path} has no scores: after the signature, write one a line.")
    return first.removeprefix("#").strip(), values


def _verified_hash(file: Path, kind: str, metrics: Mapping[str, Metric]) -> tuple[str | None, bool]:
    """The SHA-256 of a scored file, and whether the scores record the same; RecipeError if they record another."""
    found = file_hash(file) if file.is_file() else None
    recorded = [getattr(metrics[name], SCORED[kind]) for name in (BLEU, TOKENIZED) if name in metrics]
    if found is not None and any(one not in (None, found) for one in recorded):
        fix = "run the stage score again" if file.suffix == f".{kind}" else "prepare its recipe again"  # in --data-dir
        raise RecipeError(f"{file} is not the file that was scored (it changed since): {fix}.")
    return found or recorded[0], found is not None and None not in recorded


def require_equal_counts(hypotheses: Path, references: Path) -> None:
    """RecipeError unless two files have as many lines; this finds wrong files of older runs, which record no hashes."""
    if hypotheses.is_file() and references.is_file():
        found, wanted = (sum(1 for _ in text.read_lines(path)) for path in (hypotheses, references))
        if found != wanted:
            raise RecipeError(
                f"{hypotheses} has {found:,} lines and {references} has {wanted:,}: run the stages translate and score."
            )


def seal(row: Mapping[str, Any]) -> str:
    """The hash of a metric's record, which the record holds as SEAL, so that an edited number is noticed."""
    return fingerprint({key: value for key, value in row.items() if key != SEAL})


def _read_metrics(path: Path) -> dict[str, Metric]:
    """Reads SacreBLEU's JSON, a list of metrics or a single one, by their names."""
    value = read_json(path)
    try:
        rows = value if isinstance(value, list) else [value]
        if any(one.get(SEAL, seal(one)) != seal(one) for one in rows):
            raise RecipeError(
                f"{path} is not what the stage score wrote (it changed since): run the stage score again."
            )
        found = {
            _typed(one["name"], str): Metric(
                score=_finite(one["score"]),
                interval=None if one.get("confidence_var") is None else _finite(one["confidence_var"], least=0),
                **{key: _typed(one.get(key), str, NoneType) for key in ("reference", *SCORED.values())},
                sealed=SEAL in one,
                translation=_typed(one.get("translation"), dict, NoneType),
                signature=_typed(one["signature"], str),
            )
            for one in rows
        }
    except (AttributeError, TypeError, KeyError, ValueError, OverflowError):
        found = {}
    if not found:
        raise RecipeError(f"{path} is not what `sacrebleu -f json` prints: run the stage score again.")
    return found


def _finite(number: Any, least: float = -math.inf) -> float:
    """The number; TypeError, ValueError or OverflowError unless it is one, finite, and at least `least`."""
    if not math.isfinite(number) or number < least:
        raise ValueError
    return float(number)


def _typed(value: Any, *types: type) -> Any:
    """The value; TypeError unless it has one of the types."""
    if not isinstance(value, types):
        raise TypeError
    return value


def read_test_texts(score: Score) -> tuple[list[str], list[str], list[str]]:
    """The sources, references and hypotheses of a score's test set, line by line.

    Raises:
        RecipeError: a file is missing, or they have different numbers of lines.
    """
    files = [score.file(kind) for kind in (SOURCES, REFERENCES, HYPOTHESES)]
    for file in files:
        if not file.is_file():
            raise RecipeError(f"{file} is missing: run the stage translate again, or leave {score.directory} out.")
    sources, references, hypotheses = map(read_lines, files)
    if not len(sources) == len(references) == len(hypotheses):
        raise RecipeError(
            f"{files[0]} has {len(sources):,} lines, its references {len(references):,} and its translations "
            f"{len(hypotheses):,}: run the stages translate and score again."
        )
    return sources, references, hypotheses


def read_lines(path: Path) -> list[str]:
    """The lines of a file as SacreBLEU reads them; RecipeError if it cannot be read."""
    try:
        return _read_lines(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} cannot be read ({error}): run the stage translate again.") from None


@lru_cache(maxsize=256)
def _read_lines(path: Path, changed: int) -> list[str]:
    # Only newlines end lines.
    return [line.rstrip() for line in path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")]
