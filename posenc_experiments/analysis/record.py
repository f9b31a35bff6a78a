"""analysis.json: every figure of one experiment or checkpoint, made once for its inputs."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posenc_experiments.analysis.data import Data, script_words
from posenc_experiments.analysis.texts import COMPUTE, by_length, read_texts
from posenc_experiments.base.files import file_hash, fingerprint, write_json
from posenc_experiments.base.languages import tokenizer_of, unit
from posenc_experiments.evaluation.metrics import BOOTSTRAP_SEED, CONFIDENCE
from posenc_experiments.evaluation.results import Result
from posenc_experiments.evaluation.statistics.significance import SAMPLES
from posenc_experiments.experiment.layout import HYPOTHESES, REFERENCES, SOURCES, ExperimentDirectory

Record = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """An experiment to analyse, or a checkpoint without one.

    Args:
        name: of its row on the page.
        file: its analysis.json.
        checkpoint: its model.
        data: what the model reads; None if the model is not analysed.
        results: of an experiment, one for each test set.
    """

    name: str
    file: Path
    checkpoint: Path
    data: Data | None
    results: Sequence[Result] = ()


def analyse_subject(subject: Subject, sentences: int | None, cpu: bool, say: Callable[[str], None]) -> Record:
    """The record of an experiment or checkpoint, without a model if it is not analysed; written unless it is there.

    A model's figures of an earlier call stay in the file where this call finds none.

    Args:
        subject: what is analysed.
        sentences: how many the model reads; all if left out.
        cpu: whether the model computes on the CPU even where there is a GPU.
        say: takes lines for the user.
    """
    import fairseq  # here, because --help need not wait for it

    known, data = _read_record(subject.file), subject.data
    # A fork of fairseq may be installed under another name.
    versions = {"fairseq": str(fairseq.__version__)}
    versions |= {name: importlib.metadata.version(name) for name in ("fairseq_posenc", "torch", "sacrebleu")}
    record: Record = {"checkpoint": subject.checkpoint.name, "versions": versions}
    if subject.results:
        first = subject.results[0]
        about = {key: getattr(first, key) for key in ("corpus", "pair", "setup", "name", "arch", "seed")}
        settings: dict[str, Any] = {"resamples": SAMPLES, "seed": BOOTSTRAP_SEED, "confidence": CONFIDENCE}
        settings |= {"train_max_words": first.train_max_words, "tokenize": tokenizer_of(first.signature)}
        settings |= {"length_unit": unit(first.pair.split("-")[0])}
        record |= {"experiment": about, "fingerprint": first.fingerprint, "settings": settings}
        texts = [result.files[kind] for result in subject.results for kind in (SOURCES, REFERENCES, HYPOTHESES)]
        read = [ExperimentDirectory(first.directory).command, *texts]
        hashes = [[path.name, file_hash(path) if path.is_file() else None] for path in read]
        inputs = fingerprint([hashes, versions, settings])
        if not _is_kept(known.get("text"), inputs):
            say("texts")
            tests = {result.test: _analyse_texts(result) for result in subject.results}
            known["text"] = {"inputs": inputs, "tests": tests, "position_parameters": _position_parameters(first)}
        record["text"] = known["text"]
    if data is not None:
        made_by: Record = {"versions": versions, "settings": {"sentences": sentences}}
        inputs = fingerprint([file_hash(subject.checkpoint), data.contents(), made_by])
        if _is_kept(known.get("model"), inputs):
            say("model: done before")
        else:
            # Here, because it imports torch, which --help need not wait for.
            from posenc_experiments.analysis.model import analyse_model

            say("model")
            made_by |= {"inputs": inputs, "subset": data.subset, "vocabulary": data.vocabulary()}
            known["model"] = made_by | analyse_model(subject.checkpoint, data.directory, data.subset, sentences, cpu)
    later = _read_record(subject.file)  # another call may have analysed the model meanwhile
    record = json.loads(json.dumps({**record, "model": (later if data is None else known).get("model")}))
    if record != later:
        write_json(subject.file, record)
    return record if data is not None else {**record, "model": None}


def _read_record(path: Path) -> Record:
    """What an earlier call wrote; empty if there is nothing, or nothing whole."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _is_kept(part: object, inputs: str) -> bool:
    """Whether an earlier call made this part of a record from the same inputs."""
    return isinstance(part, dict) and part.get("inputs") == inputs


def _analyse_texts(result: Result) -> Record:
    texts = read_texts(result)
    return {
        "sentences": len(texts.sources),
        "length_unit": f"source {unit(result.pair.split('-')[0])}",
        **{name: COMPUTE[name](numbers.sum(0)) for name, numbers in texts.numbers.items()},
        "by_length": by_length(texts, result.train_max_words),
    }


def _position_parameters(result: Result) -> int | None:
    """How many parameters the model has for positions, by the flags of its training; None if these are not known."""
    # Here, because it imports torch and fairseq.
    from posenc_experiments.evaluation.measurements.parameters import PARTS, describe

    try:
        words = script_words(ExperimentDirectory(result.directory).command)
        counts = describe(result.arch, words[words.index("--arch") + 2 :])
    except ValueError:  # no --arch, or no model with these flags
        return None
    return sum(counts[part] for part in PARTS)
