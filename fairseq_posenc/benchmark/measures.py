"""What is measured: training, generation, memory, growth with the length, and attention alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fairseq import utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks.translation import TranslationTask

from .data import fixed_batch, load_corpus, synthetic_task
from .memory import peak_bytes
from .models import MAX_POSITIONS, SEED, Candidate, Settings, build_inference_model, build_trainer
from .rounds import CLOCKS, BenchmarkError, Result, race, refusing

BEAM = 5


def measure(name: str, settings: Settings, candidates: Sequence[Candidate]) -> list[Result]:
    """Measures all candidates, of which the first is stock fairseq.

    Args:
        name: one of MEASURES.

    Raises:
        BenchmarkError: stock fairseq cannot be measured, there is no data, or a sentence does not fit in a batch.
    """
    function, lengths = MEASURES[name]
    lengths = (settings.lengths or lengths) if lengths else ()
    if max(lengths, default=0) > settings.tokens:
        raise BenchmarkError(
            f"--tokens {settings.tokens}: a sentence of {max(lengths)} tokens does not fit in a batch; increase "
            "--tokens, or use shorter --lengths."
        )
    return function(replace(settings, lengths=lengths), candidates)


def measure_training(settings: Settings, candidates: Sequence[Candidate]) -> list[Result]:
    """Target words per second of whole updates by fairseq's trainer: forward, backward, Adam."""
    corpus, updates = load_corpus(settings.data), settings.updates
    batches = corpus.batches(
        corpus.train,
        count=(settings.rounds + 2) * updates,
        longest=min(settings.tokens, MAX_POSITIONS),
        max_tokens=settings.tokens,
        required_batch_size_multiple=8,  # the default of fairseq-train
    )
    # The warm-up has twice as many, since torch loads a library with the first batch that is padded.
    works = [batches[: 2 * updates]]
    works += [batches[start : start + updates] for start in range(2 * updates, len(batches), updates)]

    def words_per_second(seconds: float, work: list[Any]) -> float:
        return sum(batch["ntokens"] for batch in work) / seconds

    builders = {one.name: partial(trainer_step, one, settings, corpus.task) for one in candidates}
    labels = {"measure": "training", "setting": corpus.name, "unit": "words/s"}
    return race(builders, works, words_per_second, CLOCKS[settings.clock], settings.group, **labels)


def measure_generation(settings: Settings, candidates: Sequence[Candidate]) -> list[Result]:
    """Sentences per second of fairseq's beam search with cached keys and values."""
    corpus = load_corpus(settings.data)
    works = corpus.batches(corpus.test, settings.rounds + 1, max_sentences=settings.sentences)

    def sentences_per_second(seconds: float, work: Any) -> float:
        return float(work["nsentences"] / seconds)

    builders = {one.name: partial(translator, one, settings, corpus.task) for one in candidates}
    labels = {"measure": "generation", "setting": corpus.name, "unit": "sentences/s"}
    return race(builders, works, sentences_per_second, CLOCKS[settings.clock], settings.group, **labels)


def measure_memory(settings: Settings, candidates: Sequence[Candidate], measure: str = "memory") -> list[Result]:
    """Peak MiB of an update at each length, with the same number of tokens in a batch."""
    task = synthetic_task()
    found: list[Result] = []
    for length in settings.lengths:
        batch = [fixed_batch(task, length, settings.tokens, SEED)]
        results = [Result(measure, f"n = {length}", one.name, "MiB") for one in candidates]
        for result, candidate in zip(results, candidates, strict=True):

            def prepare(candidate: Candidate = candidate, batch: list[Any] = batch) -> Callable[[], Any]:
                return partial(trainer_step(candidate, settings, task), batch)

            with refusing(result, result is results[0]):
                result.own.append(peak_bytes(prepare, settings.device) / 2**20)
                result.stock.append(results[0].own[0])
        found += results
    return found


def measure_growth(settings: Settings, candidates: Sequence[Candidate]) -> list[Result]:
    """Seconds and peak MiB of an update at each length, with the same number of tokens in a batch."""
    task = synthetic_task()
    builders = {one.name: partial(trainer_step, one, settings, task) for one in candidates}
    found: list[Result] = []
    for length in settings.lengths:
        works = [[fixed_batch(task, length, settings.tokens, SEED + n)] for n in range(settings.rounds + 1)]
        labels = {"measure": "growth of time", "setting": f"n = {length}", "unit": "s"}
        found += race(builders, works, lambda s, _: s, CLOCKS[settings.clock], settings.group, **labels)
    return found + measure_memory(settings, candidates, "growth of memory")


#: by name on the command line: the function, and its default lengths, if it has lengths
MEASURES: dict[str, tuple[Callable[[Settings, Sequence[Candidate]], list[Result]], tuple[int, ...]]] = {
    "training": (measure_training, ()),
    "generation": (measure_generation, ()),
    "memory": (measure_memory, (32, 512)),
    "growth": (measure_growth, (128, 256, 512, 1024, 2048)),
}


def trainer_step(candidate: Candidate, settings: Settings, task: TranslationTask) -> Callable[[list[Any]], None]:
    """Makes a function that runs one update of fairseq's trainer on each batch."""
    trainer = build_trainer(candidate, settings, task)

    def step(batches: list[Any]) -> None:
        for batch in batches:
            # Without raise_oom the trainer would skip a batch that runs out of memory, and appear fast.
            trainer.train_step([batch], raise_oom=True)

    return step


def translator(candidate: Candidate, settings: Settings, task: TranslationTask) -> Callable[[Any], Any]:
    """Makes a function that translates one batch as fairseq-generate does, and returns its hypotheses.

    Every hypothesis is as long as the batch's longest reference, so that all models take the same number of steps: an
    untrained model would continue to the maximum length.
    """
    model = build_inference_model(candidate, settings, task)
    generator = task.build_generator([model], GenerationConfig(beam=BEAM, max_len_a=0))

    def step(batch: Any) -> Any:
        generator.min_len = generator.max_len_b = batch["target"].size(1) - 1  # without </s>
        on_device = utils.move_to_cuda(batch) if settings.device == "cuda" else batch
        return task.inference_step(generator, [model], on_device)

    return step
