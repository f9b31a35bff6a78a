"""How fast CTranslate2 and fairseq translate one text, and how well, both with fairseq-generate's search."""

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
from ..trained import Trained
from .engine import Engine, search_options
from .errors import ExportError
from .loading import load, read_lines, read_sentences
from .scoring import Search, batches, generate, make_generator
from .segmentation import Segmentation

#: from sentences of one batch to the tokens of their translations
System = Callable[[list[Tensor]], list[list[str]]]
HEADERS = ("system", "sentences/s", "times fairseq", "quartiles", "CPU: sentences/s", "times", "BLEU", "same")
NOTE = (
    "Medians of {rounds} rounds, and the quartiles of a round's ratio; CPU: by the seconds of all threads, which other "
    "jobs do not lengthen; same: translations that are fairseq's."
)


@dataclass
class Run:
    """One system on one text."""

    name: str
    translate: System
    #: of each round
    seconds: list[float] = field(default_factory=list)
    #: of all threads in each round
    cpu_seconds: list[float] = field(default_factory=list)
    translations: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Measurement:
    """fairseq's run first, then CTranslate2's."""

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
    """How many times as fast the other was, in each round: what else the machine does changes between rounds."""
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
    """Translates a text with both, in turns that rotate, in this process, from the same batches.

    Args:
        checkpoint: what fairseq runs, on the CPU.
        directory: the same, exported.
        source, reference: raw text, a sentence a line.
        data: where the dictionaries are; by default where the training had them.
        compute_types: of CTranslate2, one run each.
        search: of both.
        max_tokens: source tokens of a batch, padding counted.
        threads: of each.
        rounds: in each of which every system translates the whole text; one more warms up and is not counted.
        say: told how far it is.

    Raises:
        ExportError: something cannot be read, or lost a sentence.
    """
    search = search or Search()
    lines, references = read_lines(source), read_lines(reference)
    if len(lines) != len(references):
        raise ExportError(f"{source} has {len(lines):,} lines and {reference} has {len(references):,}: name one text.")
    trained = load(checkpoint, data)
    beside = directory / "sentencepiece.model"
    segmentation = Segmentation(beside if beside.is_file() else trained.sentencepiece, trained.source)
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
    for turn in range(rounds + 1):
        for run in rotated(runs, turn):
            start, cpu_start = time.perf_counter(), time.process_time()
            found = {
                number: tokens
                for numbers in numbered
                for number, tokens in zip(numbers, run.translate([sources[n] for n in numbers]), strict=True)
            }
            seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
            if turn > 0:
                run.seconds.append(seconds)
                run.cpu_seconds.append(cpu_seconds)
            if sorted(found) != list(range(len(lines))):
                raise ExportError(f"{run.name} gave {len(found):,} translations of {len(lines):,} sentences.")
            # fairseq and CTranslate2 invent a sentence for an empty line.
            run.translations = [segmentation.decode(found[n]) if line else "" for n, line in enumerate(lines)]
            say(f"{f'round {turn}' if turn else 'warm-up'}: {run.name}: {seconds:.1f} s")
    metric = BLEU()
    scores = [metric.corpus_score(run.translations, [references]).score for run in runs]
    return Measurement(runs, scores, str(metric.get_signature()))


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
