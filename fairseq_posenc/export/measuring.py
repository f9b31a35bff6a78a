"""Compares speed and BLEU of CTranslate2 and fairseq on one text, both with fairseq-generate's search."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from sacrebleu.metrics.bleu import BLEU
from tabulate import tabulate  # type: ignore[import-untyped]
from torch import Tensor

from ..benchmark.results import quartiles
from ..benchmark.rounds import rotated
from ..scoring import batches
from ..trained import Trained
from .directory import overrides_of
from .engine import Engine, search_options
from .errors import ExportError
from .loading import load, read_lines, read_sentences
from .search import Search, generate, make_generator
from .segmentation import Segmentation

#: translates a batch of sentences to the tokens of their translations
System = Callable[[list[Tensor]], list[list[str]]]
HEADERS = ("system", "sentences/s", "times fairseq", "quartiles", "CPU: sentences/s", "times", "BLEU", "same")
NOTE = (
    "Medians of {rounds} rounds, and quartiles of the ratio of each round; CPU: by the CPU seconds of all threads, "
    "which do not depend on other jobs; same: number of translations that are equal to fairseq's."
)


@dataclass
class Run:
    """The measurements of one system."""

    name: str
    translate: System
    #: wall-clock seconds of each round
    seconds: list[float] = field(default_factory=list)
    #: CPU seconds of all threads in each round
    cpu_seconds: list[float] = field(default_factory=list)
    translations: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Measurement:
    """The runs of fairseq and of CTranslate2, in this order, with their BLEU scores."""

    runs: list[Run]
    bleu: list[float]
    signature: str

    def __str__(self) -> str:
        fairseq = self.runs[0]
        rows = []
        for run, bleu in zip(self.runs, self.bleu, strict=True):
            low, ratio, high = quartiles(_ratios(fairseq.seconds, run.seconds))
            same = sum(one == other for one, other in zip(run.translations, fairseq.translations, strict=True))
            speed, cpu_speed = (
                len(run.translations) / statistics.median(seconds) for seconds in (run.seconds, run.cpu_seconds)
            )
            cpu_ratio = statistics.median(_ratios(fairseq.cpu_seconds, run.cpu_seconds))
            rows.append(
                [
                    *(run.name, f"{speed:.1f}", f"{ratio:.2f}", f"{low:.2f} to {high:.2f}"),
                    *(f"{cpu_speed:.1f}", f"{cpu_ratio:.2f}", f"{bleu:.2f}", f"{same:,}"),
                ]
            )
        alignment = ("left", *["right"] * (len(HEADERS) - 1))
        table = tabulate(rows, HEADERS, tablefmt="simple", disable_numparse=True, colalign=alignment)
        return f"{table}\n\n{NOTE.format(rounds=len(fairseq.seconds))}\nBLEU: {self.signature}"


def _ratios(fairseq: Sequence[float], other: Sequence[float]) -> list[float]:
    """The speed of the other system relative to fairseq's in each round, since the load of the machine may change."""
    return [one / two for one, two in zip(fairseq, other, strict=True)]


def measure(
    checkpoint: Path,
    directory: Path,
    source: Path,
    reference: Path,
    *,
    data: Path | None = None,
    compute_types: Sequence[str] = ("float32", "int8"),
    search: Search | None = None,
    max_tokens: int = 12000,
    threads: int = 1,
    rounds: int = 3,
    say: Callable[[str], None] = lambda text: None,
) -> Measurement:
    """Translates a text with fairseq and CTranslate2 in this process, from the same batches, in rotating order.

    Args:
        checkpoint: the checkpoint that fairseq runs, on the CPU.
        directory: the exported model.
        source, reference: raw text, one sentence per line.
        data: directory of the dictionaries; by default the data directory of the training.
        compute_types: CTranslate2's compute types, one run each.
        search: the search of both systems.
        max_tokens: source tokens of a batch, including padding.
        threads: number of threads of each system.
        rounds: number of rounds, in each of which every system translates the whole text; one more warms up.
        say: called with messages of progress.

    Raises:
        ExportError: a file cannot be read, or a translation is missing.
    """
    search = search or Search()
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
    runs = [
        Run("fairseq", _fairseq(trained, search)),
        *(
            Run(f"CTranslate2 {kind}", _ctranslate2(Engine(directory, trained, kind, threads), search))
            for kind in compute_types
        ),
    ]
    numbered = list(batches(sources, max_tokens))
    for round_ in range(rounds + 1):
        for run in rotated(runs, round_):
            start, cpu_start = time.perf_counter(), time.process_time()
            found = {
                number: tokens
                for numbers in numbered
                for number, tokens in zip(numbers, run.translate([sources[n] for n in numbers]), strict=True)
            }
            seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
            if round_ > 0:
                run.seconds.append(seconds)
                run.cpu_seconds.append(cpu_seconds)
            if sorted(found) != list(range(len(lines))):
                raise ExportError(f"{run.name} gave {len(found):,} translations of {len(lines):,} sentences.")
            # Both systems may translate an empty line to some sentence.
            run.translations = [segmentation.decode(found[n]) if line else "" for n, line in enumerate(lines)]
            say(f"{f'round {round_}' if round_ else 'warm-up'}: {run.name}: {seconds:.1f} s")
    scores = [metric.corpus_score(run.translations, [references]).score for run in runs]
    return Measurement(runs, scores, str(metric.get_signature()))


def bleu_of(language: str) -> BLEU:
    """SacreBLEU's BLEU with the tokenizer of a target language; ExportError if that is not installed."""
    try:
        return BLEU(trg_lang=language)
    except RuntimeError:  # with a message of several lines
        raise ExportError(
            f"SacreBLEU's tokenizer of {language} is not installed: run `pip install 'sacrebleu[{language}]'`."
        ) from None


def _fairseq(trained: Trained, search: Search) -> System:
    trained.model.make_generation_fast_(beamable_mm_beam_size=search.beam, need_attn=False)  # as fairseq-generate does
    generator = make_generator(trained, search)
    return lambda sources: [
        [trained.target[index] for index in tokens[:-1].tolist()] for tokens in generate(trained, generator, sources)
    ]


def _ctranslate2(engine: Engine, search: Search) -> System:
    options = search_options(engine.trained, search)
    return lambda sources: [
        result.hypotheses[0] for result in engine.translator.translate_batch(engine.tokens(sources), **options)
    ]
