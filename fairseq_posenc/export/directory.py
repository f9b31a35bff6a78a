"""Writes a model directory of CTranslate2 atomically, after its translations have been compared with fairseq's."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ctranslate2.converters import Converter
from ctranslate2.specs import transformer_spec
from sentencepiece import SentencePieceProcessor

from ..errors import ExportError, brief
from ..trained import Trained, load_trained
from .specification import make_specification
from .text import sample_sentences
from .verification import Engine, Verification, search_options, verify

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
    sources, what = sample_sentences(trained, sample, None if subwords is None else _sentencepiece(subwords))
    converter = PositionConverter(trained, subwords)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as name:
        made = converter.convert(f"{name}/float32")
        say(f"comparing with fairseq on {len(sources)} {what}")
        verification = verify(trained, Engine(made, trained), sources)
        if quantization is not None:
            made = converter.convert(f"{name}/quantized", quantization=quantization)
        record = {
            "checkpoint": checkpoint.name,
            "model_overrides": dict(model_overrides or {}),
            "quantization": quantization or "float32",
            "translate_batch": search_options(trained),
            "verification": asdict(verification),
        }
        Path(made, RECORD).write_text(f"{json.dumps(record, indent=2, ensure_ascii=False)}\n", encoding="utf-8")
        check_output(output, force)  # something may have been written there since the first check
        if output.exists():
            output.rename(Path(name, "replaced"))
        try:
            Path(made).rename(output)
        except BaseException:
            if Path(name, "replaced").exists():
                Path(name, "replaced").rename(output)
            raise
    return verification


def _sentencepiece(path: Path) -> SentencePieceProcessor:
    try:
        return SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError, ValueError) as error:
        raise ExportError(
            f"{path} is not a SentencePiece model ({brief(error)}): name that of the data by --sentencepiece."
        ) from None


class PositionConverter(Converter):
    """Converts a model of this package, as CTranslate2's FairseqConverter does one of fairseq."""

    def __init__(self, trained: Trained, subwords: Path | None) -> None:
        self.trained = trained
        self.subwords = subwords

    def _load(self) -> transformer_spec.TransformerSpec:
        specification = make_specification(self.trained.model, self.trained.source, self.trained.target)
        if self.subwords is not None:
            specification.register_file(str(self.subwords), "sentencepiece.model")
        return specification


def check_output(output: Path, force: bool) -> None:
    """Refuses an output that exists, unless ``force`` is given and it is a model directory of CTranslate2.

    Raises:
        ExportError: it may not be replaced.
    """
    if not output.parent.is_dir():
        raise ExportError(f"{output}: {output.parent} is not a directory: make it first, or name another output.")
    if os.path.lexists(output) and not (force and not output.is_symlink() and (output / MODEL).is_file()):
        raise ExportError(
            f"{output} exists already: name another output, or replace it with --force, if it is a model directory of "
            "CTranslate2."
        )
