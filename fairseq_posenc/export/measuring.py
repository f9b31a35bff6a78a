"""Compares speed and BLEU of CTranslate2 and fairseq on one text, both with fairseq-generate's default search."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from sacrebleu.metrics.bleu import BLEU
from tabulate import tabulate  # type: ignore[import-untyped]
from torch import Tensor

from ..benchmark.rounds import CLOCKS, Result, quartiles, race
from ..scoring import batches
from ..trained import Trained
from .directory import load, overrides_of
from .engine import BEAM, Engine, fairseq_search, words
from .errors import ExportError
from .text import Segmentation, read_lines, read_sentences

COMPUTE_TYPES = ("float32", "int8")
#: source tokens of a batch, as --max-tokens of fairseq-generate
BATCH_TOKENS = 12000
HEADERS = ("system", "sentences/s", "times fairseq", "quartiles", "BLEU", "same")
NOTE = "{clock} time, medians and quartiles of {rounds} rounds; same: number of translations equal to fairseq's."


@dataclass(frozen=True)
class Measurement:
    """The speed of fairseq and of CTranslate2, in this order, their translations and scores."""

    clock: str
    speeds: Sequence[Result]
    #: by system, the translation of each line
    translations: Mapping[str, list[str]]
    bleu: Mapping[str, float]
    signature: str

    def __str__(self) -> str:
        rows = []
        for speed in self.speeds:
            low, ratio, high = quartiles(speed.ratios)
            pairs = zip(self.translations[speed.encoding], self.translations["fairseq"], strict=True)
            same = sum(one == other for one, other in pairs)
            numbers = f"{statistics.median(speed.own):.1f}", f"{ratio:.2f}", f"{low:.2f} to {high:.2f}"
            rows.append([speed.encoding, *numbers, f"{self.bleu[speed.encoding]:.2f}", f"{same:,}"])
        alignment = ("left", *["right"] * (len(HEADERS) - 1))
        table = tabulate(rows, HEADERS, tablefmt="simple", disable_numparse=True, colalign=alignment)
        note = NOTE.format(clock=self.clock, rounds=len(self.speeds[0].own))
        return f"{table}\n\n{note}\nBLEU: {self.signature}"


def measure(
    checkpoint: Path,
    directory: Path,
    source: Path,
    reference: Path,
    *,
    data: Path | None = None,
    threads: int = 1,
    rounds: int = 3,
    clock: str = "wall",
) -> Measurement:
    """Translates a text with fairseq and CTranslate2 in this process, from the same batches, in rotating order.

    Args:
        checkpoint: the checkpoint that fairseq runs, on the CPU.
        directory: the exported model.
        source, reference: raw text, one sentence per line.
        data: directory of the dictionaries; by default the data directory of the training.
        threads: number of threads of each system.
        rounds: number of rounds, in each of which every system translates the whole text; one more warms up.
        clock: one of CLOCKS.

    Raises:
        ExportError: a file cannot be read.
        CheckpointError: the checkpoint or its dictionaries cannot be used.
    """
    lines, references = read_lines(source), read_lines(reference)
    if len(lines) != len(references):
        raise ExportError(
            f"{source} has {len(lines):,} lines and {reference} has {len(references):,}: name the source and the "
            "reference of one text."
        )
    trained = load(checkpoint, data, overrides_of(directory))
    metric = bleu_of(trained.task.cfg.target_lang)
    exported = directory / "sentencepiece.model"
    segmentation = Segmentation(exported if exported.is_file() else trained.sentencepiece, trained.source)
    sources = read_sentences(source, trained, segmentation)
    torch.set_num_threads(threads)
    systems = {"fairseq": _fairseq(trained)}
    for kind in COMPUTE_TYPES:
        systems[f"CTranslate2 {kind}"] = _ctranslate2(Engine(directory, trained, kind, threads))
    translations: dict[str, list[str]] = {}

    def translate(name: str, numbered: list[list[int]]) -> None:
        found: dict[int, list[str]] = {}
        for numbers in numbered:
            found.update(zip(numbers, systems[name]([sources[number] for number in numbers]), strict=True))
        # Both systems may translate an empty line to some sentence.
        translations[name] = [segmentation.decode(found[number]) if line else "" for number, line in enumerate(lines)]

    speeds = [Result("translation", str(source), name, "sentences/s") for name in systems]
    builders = {name: partial(partial, translate, name) for name in systems}
    works = [list(batches(sources, BATCH_TOKENS))] * (rounds + 1)
    race(speeds, builders, works, lambda seconds, _: len(lines) / seconds, CLOCKS[clock])
    for speed in speeds:
        if speed.refused:
            raise ExportError(f"{speed.encoding} cannot translate {source}: {speed.refused}")
    bleu = {name: metric.corpus_score(translations[name], [references]).score for name in systems}
    return Measurement(clock, speeds, translations, bleu, str(metric.get_signature()))


def bleu_of(language: str) -> BLEU:
    """SacreBLEU's BLEU with the tokenizer of a target language; ExportError if that is not installed."""
    try:
        return BLEU(trg_lang=language)
    except RuntimeError:  # with a message of several lines
        raise ExportError(
            f"SacreBLEU's tokenizer of {language} is not installed: run `pip install 'sacrebleu[{language}]'`."
        ) from None


def _fairseq(trained: Trained) -> Callable[[list[Tensor]], list[list[str]]]:
    trained.model.make_generation_fast_(beamable_mm_beam_size=BEAM, need_attn=False)  # as fairseq-generate does
    translate = fairseq_search(trained)
    return lambda sources: words(trained.target, translate(sources))


def _ctranslate2(engine: Engine) -> Callable[[list[Tensor]], list[list[str]]]:
    return lambda sources: [result.hypotheses[0] for result in engine.search(sources)]
