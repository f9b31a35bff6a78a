"""Writes a model directory of CTranslate2 atomically, after its translations have been compared with fairseq's."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ctranslate2
import torch

from .. import __version__
from ..errors import ExportError
from ..signature import SIGNATURE, decode_signature
from ..trained import load_trained
from .specification import make_specification
from .text import read_sentences, some_sentences, subword_splitter
from .verification import Engine, Verification, search_options, verify

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
        CheckpointError: the checkpoint or its dictionaries cannot be used.
    """
    check_output(output, force)
    trained = load_trained(checkpoint, data, model_overrides)
    subwords = sentencepiece or trained.sentencepiece
    split = subword_splitter(subwords, trained.source)
    specification = make_specification(trained.model, trained.source, trained.target)
    if sample is None:
        sources, what = some_sentences(trained, SENTENCES)
    else:
        # For an empty line CTranslate2 outputs an empty line, fairseq does not.
        sources = [sentence for sentence in read_sentences(sample, trained, split) if len(sentence) > 1]
        what = f"lines of {sample}"
    if not sources:
        raise ExportError(f"{sample} has no words: name a text with one sentence per line.")
    say(f"comparing with fairseq on {len(sources)} {what}")
    try:
        with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as name:
            final = _write(specification, Path(name) / "float32", None, subwords)
            verification = verify(trained, Engine(final, trained), sources)
            if quantization is not None:
                specification = make_specification(trained.model, trained.source, trained.target)
                final = _write(specification, Path(name) / "quantized", quantization, subwords)
                Engine(final, trained, compute_type="default").translate(sources[:1])
            record = {
                "checkpoint": checkpoint.name,
                "positions": json.loads(decode_signature(trained.model.state_dict()[SIGNATURE])),
                "model_overrides": dict(model_overrides or {}),
                "quantization": quantization or "float32",
                "translate_batch": search_options(trained),
                "verification": asdict(verification),
                "versions": {
                    "fairseq_posenc": __version__,
                    "ctranslate2": ctranslate2.__version__,
                    "torch": torch.__version__,
                },
            }
            text = json.dumps(record, indent=2, ensure_ascii=False)
            (final / RECORD).write_text(f"{text}\n", encoding="utf-8")
            check_output(output, force)  # something may have been written there since the first check
            _move_to_output(final, output, Path(name) / "replaced")
    except OSError as error:
        raise ExportError(
            f"{output} cannot be written ({error.strerror or error}): check permissions and space."
        ) from None
    return verification


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


def _move_to_output(made: Path, output: Path, replaced: Path) -> None:
    """Renames the model directory to ``output``, and what is there to ``replaced``; restores that if it fails."""
    try:
        if output.exists():
            output.rename(replaced)
        made.rename(output)
    except BaseException:
        if replaced.exists() and not output.exists():
            replaced.rename(output)
        raise


def _write(specification: Any, directory: Path, quantization: str | None, subwords: Path | None) -> Path:
    if subwords is not None:
        specification.register_file(str(subwords), "sentencepiece.model")
    specification.validate()
    specification.optimize(quantization=quantization)
    directory.mkdir()
    specification.save(str(directory))
    return directory
