"""analysis.json: every figure of one experiment or checkpoint, made once for its inputs."""

from __future__ import annotations

import importlib.metadata
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posenc_experiments.analysis.data import Data, data_of, script_words
from posenc_experiments.analysis.progress import every_ten_seconds
from posenc_experiments.analysis.texts import COMPUTE, by_length, read_texts
from posenc_experiments.base.languages import is_unspaced, unit
from posenc_experiments.base.markers import file_hash, fingerprint, write_json
from posenc_experiments.evaluation.metrics import BOOTSTRAP_SEED, CONFIDENCE, tokenizer_of
from posenc_experiments.evaluation.results import Result, text_file
from posenc_experiments.evaluation.significance import SAMPLES
from posenc_experiments.experiment.layout import HYPOTHESES, REFERENCES, SOURCES, ExperimentDirectory
from posenc_experiments.training.train_log import TrainLog

#: increase it when figures change but the version of the package does not: kept records are then computed again
FIGURES = 2
Record = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True)
class ModelSettings:
    """What is analysed of models."""

    test: str | None  # the test set whose sentences they read; None: no models
    sentences: int | None = None  # the number of its sentences that models read; None: all
    binarized: Path | None = None
    cpu: bool = False  # whether models compute on the CPU even where there is a GPU


def versions() -> dict[str, str]:
    """The versions of the packages that compute the figures."""
    names = {"fairseq_posenc": "fairseq_posenc", "torch": "torch", "fairseq": "ve-fairseq", "sacrebleu": "sacrebleu"}
    return {name: importlib.metadata.version(package) for name, package in names.items()}


def analyse_experiment(results: Sequence[Result], settings: ModelSettings, path: Path, say: Say) -> Record:
    """The record of an experiment with these results, one for each test set; written to `path` unless it is there.

    A model's figures of an earlier call stay in that file where this call finds none.
    """
    first = results[0]
    files = ExperimentDirectory(first.directory)
    known = read_record(path)
    data = {result.test: data_of(result, settings.binarized) for result in results}
    record: Record = {
        "experiment": {key: getattr(first, key) for key in ("corpus", "pair", "setup", "name", "arch", "seed")},
        "fingerprint": first.fingerprint,
        "versions": versions(),
        "settings": {"resamples": SAMPLES, "seed": BOOTSTRAP_SEED, "confidence": CONFIDENCE},
    }
    if first.train_max_words:
        record["settings"]["train_max_words"] = first.train_max_words
    # Only what is not a default, so that kept records stay.
    if (tokenizer := tokenizer_of(first.signature)) != "13a":
        record["settings"]["tokenize"] = tokenizer
    if is_unspaced(language := first.pair.split("-")[0]):
        record["settings"]["length_unit"] = unit(language)
    inputs = fingerprint([_text_inputs(results, data, files), record["versions"], record["settings"], FIGURES])
    record["text"] = _kept(known, "text", inputs)
    if record["text"] is None:
        say("texts")
        figures = {
            "tests": {result.test: _analyse_texts(result, data[result.test]) for result in results},
            "valid_losses": valid_losses(files.train_log),
            "position_parameters": position_parameters(files.command, first.arch),
        }
        record["text"] = _as_read({"inputs": inputs, **figures})
    of_test = None if settings.test is None else data[settings.test]
    earlier, model = known.get("model"), None
    if of_test is not None and files.averaged.is_file():
        model = _model(files.averaged, of_test, settings, known, say)
    elif settings.test is not None:
        kept = f"; {path.name} keeps the figures of an earlier call, which the page leaves out" if earlier else ""
        say(f"no model: averaged.pt or the data of its training is not there (--data names the data){kept}")
    # That of another call may have taken long, and may have ended while this one worked.
    record["model"] = model or read_record(path).get("model")
    if record != known:
        write_json(path, record)
    return {**record, "model": model}


def analyse_checkpoint(checkpoint: Path, data: Data, settings: ModelSettings, path: Path, say: Say) -> Record:
    """The record of a checkpoint without an experiment directory; written as that of an experiment is."""
    known = read_record(path)
    record = {
        "checkpoint": checkpoint.name,
        "versions": versions(),
        "model": _model(checkpoint, data, settings, known, say),
    }
    if record != known:
        write_json(path, record)
    return record


def _model(checkpoint: Path, data: Data, settings: ModelSettings, known: Record, say: Say) -> Record:
    made_by = {"versions": versions(), "settings": {"sentences": settings.sentences}}
    inputs = fingerprint([file_hash(checkpoint), data.contents(), made_by, FIGURES])
    found = _kept(known, "model", inputs)
    if found is not None:
        say("model: done before")
        return found
    # Here, because it imports torch and fairseq, which analyses of texts need not wait for.
    from posenc_experiments.analysis.model import analyse_model

    say("model")
    found = analyse_model(
        checkpoint,
        data.directory,
        data.source,
        data.target,
        data.subset,
        settings.sentences,
        progress=every_ten_seconds(lambda text: say(f"model: {text}"), "sentences"),
        cpu=settings.cpu,
    )
    return _as_read({"inputs": inputs, **made_by, "subset": data.subset, "vocabulary": data.vocabulary(), **found})


def read_record(path: Path) -> Record:
    """What an earlier call wrote; empty if there is nothing, or nothing whole."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _as_read(figures: Record) -> Record:
    """The same as JSON has it, with keys that are text."""
    return dict(json.loads(json.dumps(figures)))


def _kept(known: Record, name: str, inputs: str) -> Record | None:
    """A part that an earlier call made from the same inputs; None if there is none."""
    found = known.get(name)
    return found if isinstance(found, dict) and found.get("inputs") == inputs else None


def _text_inputs(results: Sequence[Result], data: dict[str, Data | None], files: ExperimentDirectory) -> list[Any]:
    paths = [text_file(result, kind) for result in results for kind in (SOURCES, REFERENCES, HYPOTHESES)]
    paths += [files.train_log, files.command]
    lengths = [
        None if one is None else [one.index(split, one.source) for split in ("train", one.subset)]
        for one in data.values()
    ]
    paths += [path for two in lengths if two is not None for path in two]
    return [[path.name, file_hash(path) if path.is_file() else None] for path in paths]


def _analyse_texts(result: Result, data: Data | None) -> Record:
    texts = read_texts(result)
    limit = result.train_max_words
    if limit is not None:
        # In the unit of the limit, so that the limit is a boundary of buckets; a short sentence may have many tokens.
        longer: NDArray[np.bool_] | None = texts.source_lengths > limit
    else:
        longer = None if data is None else data.longer_than_training(len(texts.sources))
    return {
        "sentences": len(texts.sources),
        "length_unit": f"source {unit(result.pair.split('-')[0])}",
        **{name: COMPUTE[name](numbers.sum(0), len(numbers)) for name, numbers in texts.numbers().items()},
        "by_length": by_length(texts, longer, limit),
    }


def valid_losses(log: Path) -> list[tuple[int, float | None]]:
    """Updates and loss of each validation in a training's log; no loss where the training had diverged."""
    found = TrainLog()
    found.follow(log)
    return [(updates, loss if math.isfinite(loss) else None) for updates, loss in found.valid_losses.items()]


def position_parameters(command: Path, arch: str) -> int | None:
    """How many parameters the model has for positions, by the flags of its training; None if these are not known."""
    # Here, because it imports torch and fairseq.
    from posenc_experiments.evaluation.parameters import describe

    try:
        words = script_words(command)
        return describe(arch, words[words.index("--arch") + 2 :]).positions
    except ValueError:  # no --arch, or no model with these flags
        return None
