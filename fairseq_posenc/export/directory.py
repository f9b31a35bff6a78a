"""A model directory of CTranslate2, which gets its name only when all is in it and was compared with fairseq."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
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
from .loading import load, read_sentences, some_sentences, spoken
from .scoring import Search
from .segmentation import Segmentation
from .specification import make_specification
from .verification import Verification, require, verify

#: sentences of the data that both translate
SENTENCES = 40
#: what CTranslate2 calls the model's own file
MODEL = "model.bin"
#: in the directory: what was exported, from what, and how to search with it as fairseq does
RECORD = "export.json"


def export(
    checkpoint: Path,
    output: Path,
    *,
    data: Path | None = None,
    quantization: str | None = None,
    sample: Path | None = None,
    sentencepiece: Path | None = None,
    force: bool = False,
    search: Search | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Verification:
    """Writes a checkpoint as a model directory of CTranslate2.

    Args:
        checkpoint: trained or averaged.
        output: the directory to make.
        data: where the dictionaries are; by default where the training had them.
        quantization: of the weights, as CTranslate2 names it; None leaves them in single precision.
        sample: text to compare translations of; by default sentences of the data.
        sentencepiece: the model of the subwords, to be put beside; by default that of the recipe.
        force: replaces a model directory of CTranslate2.
        search: with which translations are compared.
        say: told how far it is.

    Returns:
        how far CTranslate2 is from fairseq, in single precision.

    Raises:
        ExportError: nothing was exported.
    """
    search = search or Search()
    check_output(output, force)
    trained = load(checkpoint, data)
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
        _record(trained, final / RECORD, quantization, search, verification)
        _put(final, output, work, force)
    return verification


def check_output(output: Path, force: bool) -> None:
    """Refuses to write over what is there.

    Raises:
        ExportError: something is there, and it may not be replaced.
    """
    if not output.parent.is_dir():
        raise ExportError(f"{output.parent} is no directory: make it first, or name another output.")
    if not os.path.lexists(output):
        return
    if not force:
        raise ExportError(f"{output} exists already: name another output, or replace it with --force.")
    if output.is_symlink() or not (output / MODEL).is_file():
        raise ExportError(f"{output} is no model directory of CTranslate2, so --force does not replace it.")


@contextmanager
def working_directory(output: Path) -> Iterator[Path]:
    """A directory beside the output, without what a killed export left there; gone in the end."""
    whole = output.absolute()
    work = whole.with_name(f".{whole.name}.unfinished")
    try:
        if work.exists():
            shutil.rmtree(work)
        work.mkdir()
        yield work
    except OSError as error:
        raise ExportError(
            f"{output} cannot be written ({error.strerror or error}): check permissions and space."
        ) from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _put(made: Path, output: Path, work: Path, force: bool) -> None:
    """Gives the model its name; what it replaces has it back if that fails.

    Raises:
        ExportError: since the first check, something came there that may not be replaced.
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
    sources = spoken(read_sentences(sample, trained, segmentation))
    if not sources:
        raise ExportError(f"{sample} has no words: name a text with one sentence a line.")
    return sources, f"lines of {sample}"


def _write(specification: Any, directory: Path, quantization: str | None, subwords: Path | None) -> Path:
    if subwords is not None:
        specification.register_file(str(subwords), "sentencepiece.model")
    specification.validate()
    specification.optimize(quantization=quantization)
    directory.mkdir()
    specification.save(str(directory))
    return directory


def _record(trained: Trained, path: Path, quantization: str | None, search: Search, verification: Verification) -> None:
    record: dict[str, Any] = {
        "checkpoint": trained.checkpoint.name,
        "positions": json.loads(decode_signature(trained.model.state_dict()[SIGNATURE])),
        "quantization": quantization or "float32",
        "translate_batch": search_options(trained, search),
        "verification": asdict(verification),
        "versions": {"fairseq_posenc": __version__, "ctranslate2": ctranslate2.__version__, "torch": torch.__version__},
    }
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
