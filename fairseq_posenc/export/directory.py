"""Writes a model directory of CTranslate2 atomically, after its translations have been compared with fairseq's."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from torch import Tensor

from .. import __version__
from ..signature import SIGNATURE, decode_signature
from ..trained import Trained
from .engine import Engine, search_options
from .errors import ExportError
from .loading import load, non_empty, read_sentences, some_sentences
from .search import Search
from .segmentation import Segmentation
from .specification import make_specification
from .verification import Verification, require, verify

#: number of sentences that both translate for the comparison
SENTENCES = 40
#: CTranslate2's name of the model file
MODEL = "model.bin"
#: name of the record in the directory: the checkpoint, the settings of the export, and fairseq's search options
RECORD = "export.json"


def export(
    checkpoint: Path,
    output: Path,
    *,
    data: Path | None = None,
    model_overrides: Mapping[str, Any] | None = None,
    quantization: str | None = None,
    sample: Path | None = None,
    sentencepiece: Path | None = None,
    force: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Verification:
    """Exports a checkpoint to a model directory of CTranslate2.

    Args:
        checkpoint: a trained or averaged checkpoint.
        output: the directory to make.
        data: directory of the dictionaries; by default the data directory of the training.
        model_overrides: settings of the model that replace those of the training, as --model-overrides of
            fairseq-generate.
        quantization: quantization of the weights, by CTranslate2's name; None for single precision.
        sample: text whose translations are compared; by default sentences of the data.
        sentencepiece: the SentencePiece model, which is copied to the directory; by default that of the recipe.
        force: replace an existing model directory of CTranslate2.
        say: called with messages of progress.

    Returns:
        the differences between CTranslate2 and fairseq, in single precision.

    Raises:
        ExportError: the export failed or was refused; the output is unchanged.
    """
    search = Search()
    check_output(output, force)
    trained = load(checkpoint, data, model_overrides)
    subwords = sentencepiece or trained.sentencepiece
    segmentation = Segmentation(subwords, trained.source)
    specification = make_specification(trained.model, trained.source, trained.target)
    sources, what = _sources(trained, sample, segmentation)
    say(f"comparing with fairseq on {len(sources)} {what}")
    with working_directory(output) as work:
        plain = _write(specification, work / "float32", None, subwords)
        verification = verify(trained, Engine(plain, trained), sources, search)
        require(verification)
        final = plain
        if quantization is not None:
            specification = make_specification(trained.model, trained.source, trained.target)
            final = _write(specification, work / "quantized", quantization, subwords)
            Engine(final, trained, compute_type="default").translate(sources[:1], search)
        _record(trained, final / RECORD, model_overrides or {}, quantization, search, verification)
        _move_to_output(final, output, work, force)
    return verification


def overrides_of(directory: Path) -> dict[str, Any]:
    """The model overrides with which a model directory was exported."""
    record = directory / RECORD
    found = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    return dict(found.get("model_overrides", {}))


def check_output(output: Path, force: bool) -> None:
    """Refuses an output that exists, unless ``force`` is given and it is a model directory of CTranslate2.

    Raises:
        ExportError: it may not be replaced.
    """
    if not output.parent.is_dir():
        raise ExportError(f"{output.parent} is not a directory: make it first, or name another output.")
    if not os.path.lexists(output):
        return
    if not force:
        raise ExportError(f"{output} exists already: name another output, or replace it with --force.")
    if output.is_symlink() or not (output / MODEL).is_file():
        raise ExportError(
            f"{output} is not a model directory of CTranslate2, so --force does not replace it: name another output."
        )


@contextmanager
def working_directory(output: Path) -> Iterator[Path]:
    """An empty temporary directory next to the output, locked, and removed at the end. Empties that of a killed export.

    Raises:
        ExportError: another export is writing the output, or the output cannot be written.
    """
    whole = output.absolute()
    work = whole.with_name(f".{whole.name}.unfinished")
    try:
        work.mkdir(exist_ok=True)
        lock = os.open(work, os.O_RDONLY)
        try:
            _require_own(lock, work, output)
            for left in work.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)
        finally:
            os.close(lock)
    except OSError as error:
        raise ExportError(
            f"{output} cannot be written ({error.strerror or error}): check permissions and space."
        ) from None


def _require_own(lock: int, work: Path, output: Path) -> None:
    """Locks the open directory; ExportError if another export holds it, or has just removed or replaced it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_own = os.path.samestat(os.fstat(lock), os.stat(work))
    except (BlockingIOError, FileNotFoundError):
        is_own = False
    if not is_own:
        raise ExportError(f"another export is writing {output}: wait for it, or name another output.")


def _move_to_output(made: Path, output: Path, work: Path, force: bool) -> None:
    """Renames the model directory to ``output``, and restores what it replaces if that fails.

    Raises:
        ExportError: since the first check, something was written there that may not be replaced.
    """
    check_output(output, force)
    replaced = work / "replaced"
    try:
        if output.exists():
            output.rename(replaced)
        made.rename(output)
    except BaseException:
        if replaced.exists() and not os.path.lexists(output):
            replaced.rename(output)
        raise


def _sources(trained: Trained, sample: Path | None, segmentation: Segmentation) -> tuple[list[Tensor], str]:
    if sample is None:
        return some_sentences(trained, SENTENCES)
    sources = non_empty(read_sentences(sample, trained, segmentation))
    if not sources:
        raise ExportError(f"{sample} has no words: name a text with one sentence per line.")
    return sources, f"lines of {sample}"


def _write(specification: Any, directory: Path, quantization: str | None, subwords: Path | None) -> Path:
    if subwords is not None:
        specification.register_file(str(subwords), "sentencepiece.model")
    specification.validate()
    specification.optimize(quantization=quantization)
    directory.mkdir()
    specification.save(str(directory))
    return directory


def _record(
    trained: Trained,
    path: Path,
    model_overrides: Mapping[str, Any],
    quantization: str | None,
    search: Search,
    verification: Verification,
) -> None:
    record: dict[str, Any] = {
        "checkpoint": trained.checkpoint.name,
        "positions": json.loads(decode_signature(trained.model.state_dict()[SIGNATURE])),
        "model_overrides": dict(model_overrides),
        "quantization": quantization or "float32",
        "translate_batch": search_options(trained, search),
        "verification": asdict(verification),
        "versions": {"fairseq_posenc": __version__, "ctranslate2": ctranslate2.__version__, "torch": torch.__version__},
    }
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
