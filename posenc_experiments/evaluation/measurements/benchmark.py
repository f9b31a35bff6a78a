"""Measures speed and memory of position encodings beside stock fairseq's transformer of the same size.

The speed of a machine varies, so results are ratios to stock fairseq within one process. Two models are in memory at a
time: stock, and one with an encoding. In each round both do the same work, one after the other, and their ratio is
computed for each round.
"""

from __future__ import annotations

import gc
import statistics
import time
import timeit
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.data import LanguagePairDataset
from fairseq.dataclass.configs import GenerationConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.trainer import Trainer
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.benchmark import timer as wall_clock

from fairseq_posenc import architectures
from fairseq_posenc.encodings import find_encoding
from fairseq_posenc.encodings.contract.options import flag
from fairseq_posenc.errors import brief
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.experiment.fairseq_flags import read
from posenc_experiments.experiment.unallocated import numbered_dictionary

#: the name of stock fairseq's model, with which all others are compared
STOCK = "stock"
#: by size: fairseq's architecture and additional flags; "small" is DIET's BERT-small (hidden 512, 4 layers, 8 heads)
SIZES: dict[str, tuple[str, tuple[str, ...]]] = {
    "small": ("wmt_en_de", ("--encoder-layers", "4", "--decoder-layers", "4")),
    "base": ("wmt_en_de", ()),
    "big": ("vaswani_wmt_en_de_big", ()),
    **{size: (size, ()) for size in architectures.SIZES},
}
PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
#: seconds by name: "wall" waits for the GPU; "cpu" counts CPU seconds of this process, on a machine with other jobs
CLOCKS: dict[str, Callable[[], float]] = {"wall": wall_clock, "cpu": time.process_time}
MAX_POSITIONS = 1024  # fairseq's default for the number of rows of position tables
SEED, BEAM = 1, 5
#: random sentences have the lengths of news text in subwords: 26 tokens on average, some over 100
MEDIAN_LENGTH, LENGTH_SPREAD, LONGEST = 22, 0.6, 200
SENTENCES, VOCABULARY = 20_000, 8000
TRAINING = (
    *("--task", "translation", "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--lr", "0.0001"),
    *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"),
)
#: what is measured, and its unit: whole updates, cached beam search; an update, or its passes, at each of some lengths
MEASURES = {
    "training": "words/s",
    "generation": "sentences/s",
    "time": "s",
    "memory": "MiB",
    "operations": "operations",
    "kernels": "kernels",
}
#: measures that are whole numbers
COUNTS = ("operations", "kernels")
#: measures that are the same in every round
CONSTANT = ("memory", *COUNTS)
#: errors of encodings, fairseq and torch for a model that cannot be built or run; out of memory is a RuntimeError
_REFUSALS = (ValueError, AssertionError, RuntimeError)


@dataclass(frozen=True)
class Settings:
    """The settings of a benchmark, which all models have in common."""

    size: str = "base"  # one of SIZES
    device: str = "cpu"  # "cpu" or "cuda"
    precision: str = "fp32"  # one of PRECISIONS
    clock: str = "wall"  # one of CLOCKS
    data: Path | None = (
        None  # directory of a binarized corpus, for training and generation; random sentences are used if None
    )
    rounds: int = 9  # number of rounds, without the first, which warms up
    tokens: int = 2048  # tokens of a batch, in each language
    sentences: int = 32  # sentences of a batch in generation
    lengths: tuple[int, ...] = (32, 512)  # tokens of a sentence, for time and memory
    flags: tuple[str, ...] = ()  # additional flags of fairseq-train, for stock fairseq too


@dataclass
class Result:
    """The figures of one model in one setting."""

    measure: str
    setting: str  # the corpus or the length
    encoding: str
    unit: str
    own: list[float] = field(default_factory=list)  # figures of each round in ``unit``, without the first
    stock: list[float] = field(default_factory=list)  # stock fairseq's figures of the same rounds
    refused: str | None = None  # why the model could not be measured; None if it was

    @property
    def ratios(self) -> list[float]:
        """The ratio of own to stock's figure in each round."""
        return [own / stock for own, stock in zip(self.own, self.stock, strict=True)]

    def median(self) -> str:
        """The median figure with four significant digits."""
        if not self.own:
            return "refused" if self.refused else "not measured"
        value = statistics.median(self.own)
        return f"{value:,.0f}" if value >= 1000 or self.measure in COUNTS else f"{value:#.4g}"

    def ratio(self) -> str:
        """The median ratio to stock and, of several rounds, its quartiles."""
        if not self.own or self.encoding == STOCK:
            return "1" if self.encoding == STOCK else "refused"
        low, middle, high = np.quantile(self.ratios, [0.25, 0.5, 0.75])
        return f"{middle:.3f} ({low:.3f} to {high:.3f})" if len(self.own) > 1 else f"{middle:.3f}"


#: measures one batch with one model
Step = Callable[[Any], float]


def measure(
    name: str, settings: Settings, encodings: Sequence[str], keep: Callable[[list[Result]], None] = lambda results: None
) -> list[Result]:
    """Measures stock fairseq and each encoding in the same rounds.

    Args:
        name: one of MEASURES.
        settings: those of all models.
        encodings: names, which may have options: ``shaw:position_sharing=head,clipping_distance=16``.
        keep: called after each encoding with all results so far, because a later one may be interrupted.

    Raises:
        FlagError: there is no such encoding.
        RecipeError: stock fairseq cannot be measured, options of an encoding are invalid, or there is no data.
    """
    task, batches_by_setting = work(name, settings)
    for encoding in encodings:
        find_encoding(encoding.partition(":")[0])
        if ":" in encoding:  # else FLAGS may be refused for some encodings
            try:
                configure(encoding, settings, task)
            except ValueError as error:
                raise RecipeError(f"{encoding}: {brief(error)}") from None
    all_results: list[Result] = []
    for setting, batches in batches_by_setting.items():
        results = [Result(name, setting, model, MEASURES[name]) for model in (STOCK, *encodings)]
        all_results += results
        compare(results, partial(build, name, settings, task, batches[0]), batches, partial(keep, all_results))
    return all_results


def compare(
    results: Sequence[Result],
    build: Callable[[str], Step],
    batches: Sequence[Any],
    keep: Callable[[], None] = lambda: None,
) -> None:
    """Measures every model beside stock fairseq, which is the first; adds the figures of each round to its result.

    Args:
        results: of the models, without figures.
        build: makes what measures the model of a name.
        batches: the work of each round; the first warms up.
        keep: called after each model.

    Raises:
        RecipeError: stock fairseq cannot be built or run.
    """
    stock, *others = results
    try:
        of_stock = build(STOCK)
        of_stock(batches[0])
    except _REFUSALS as error:
        raise RecipeError(f"stock fairseq itself cannot be measured: {brief(error)}") from error
    for result in others:
        try:
            of_model = build(result.encoding)
            of_model(batches[0])
            for batch in batches[1:]:
                result.stock.append(of_stock(batch))
                result.own.append(of_model(batch))
        except _REFUSALS as error:
            result.refused, result.own, result.stock = brief(error), [], []
        stock.own += result.stock
        stock.stock += result.stock
        of_model = of_stock  # releases the model
        gc.collect()  # fairseq's trainers contain reference cycles
        torch.cuda.empty_cache()
        keep()


def build(name: str, settings: Settings, task: TranslationTask, batch: Any, model: str) -> Step:
    """Makes what measures a model.

    Args:
        name: one of MEASURES.
        batch: the only one, for a measure that is the same in every round.
        model: STOCK, or an encoding with options.
    """
    if name == "memory":

        def two_updates() -> None:  # the first allocates the optimizer's state
            update = build_update(model, settings, task)
            update(batch)
            update(batch)

        peak = peak_bytes(two_updates, settings.device) / 2**20
        return lambda _: peak
    if name == "operations":
        count = count_operations(build_passes(model, settings, task, batch))
        return lambda _: count
    if name == "kernels":
        update = build_update(model, settings, task)
        launched = count_kernels(lambda: update(batch))
        return lambda _: launched
    step = (build_translation if name == "generation" else build_update)(model, settings, task)

    def timed(batch: Any) -> float:
        # Without garbage collection, which takes as long as a step of a small model.
        seconds = timeit.timeit(lambda: step(batch), timer=CLOCKS[settings.clock], number=1)
        if name == "time":
            return seconds
        return float(batch["ntokens" if name == "training" else "nsentences"] / seconds)

    return timed


def peak_bytes(run: Callable[[], Any], device: str) -> int:
    """Peak memory in bytes of the tensors that ``run`` allocates.

    On a CPU it is the sum of the allocations and releases in torch's profiler, which is exact and reproducible; on a
    GPU it is torch.cuda.max_memory_allocated.
    """
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    results: Any = profiler.profiler and profiler.profiler.kineto_results
    alive = peak = 0
    for event in sorted(results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            alive += event.nbytes()
            peak = max(peak, alive)
    return peak


#: operations that run no kernel, although torch does not call them views
_NO_KERNEL = (torch.ops.aten._unsafe_view.default, torch.ops.aten.promote_types.default)


class _Counting(TorchDispatchMode):
    """Counts the ATen operations that run in its context. Views are left out: they run no kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not (operation.is_view or operation in _NO_KERNEL)
        return operation(*args, **(kwargs or {}))


def count_operations(run: Callable[[], Any]) -> int:
    """The number of ATen operations of ``run``, backward passes included, views left out.

    The first run, which also fills caches of the process, is not counted.
    """
    run()
    with _Counting() as counting:
        run()
    return counting.count


def count_kernels(run: Callable[[], Any]) -> int:
    """The number of kernels and copies that ``run`` starts on the GPU; a first run, which warms up, is not counted."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    return sum(event.device_type.name == "CUDA" for event in profiler.events())


# --- models ---


def configure(model: str, settings: Settings, task: TranslationTask) -> Any:
    """fairseq's configuration of a training of STOCK, or of an encoding with options.

    Raises:
        ValueError: the flags are invalid for this model.
    """
    size, size_flags = SIZES[settings.size]
    encoding, _, options = model.partition(":")
    arch = f"transformer_{size}" if model == STOCK else architectures.architecture_name(encoding, size)
    rows = str(max(MAX_POSITIONS, *settings.lengths))
    words = [
        *("no-data", "--seed", str(SEED), *TRAINING, *size_flags),
        *([] if settings.precision == "fp32" else [f"--{settings.precision}"]),
        *("--max-source-positions", rows, "--max-target-positions", rows),
        *("--distributed-world-size", "1"),  # fairseq's default is the number of GPUs
        *(["--cpu"] if settings.device == "cpu" else []),
        # As in the papers, where the languages have a joint dictionary.
        *(["--share-all-embeddings"] if task.source_dictionary == task.target_dictionary else []),
        *settings.flags,
        *(_as_flag(option) for option in options.split(",") if option),
        *("--arch", arch),
    ]
    return convert_namespace_to_omegaconf(Namespace(**read("train", tuple(words))))


def _as_flag(option: str) -> str:
    """An option and its value, such as clipping_distance=4, as a flag."""
    name, equals, value = option.partition("=")
    return flag(name) + equals + value


def build_update(model: str, settings: Settings, task: TranslationTask) -> Callable[[Any], Any]:
    """Makes a function that runs an update of fairseq's trainer on one batch."""
    cfg = configure(model, settings, task)
    utils.set_torch_seed(SEED)
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    # fairseq would write a crash.pt of some hundred megabytes if a step raises an error.
    trainer.save_checkpoint = lambda *args, **kwargs: None
    # Without raise_oom the trainer would skip a batch that runs out of memory, and appear fast.
    return lambda batch: trainer.train_step([batch], raise_oom=True)


def build_passes(name: str, settings: Settings, task: TranslationTask, batch: Any) -> Callable[[], None]:
    """Makes a function that runs a forward and a backward pass of a batch in training mode, without the optimizer."""
    cfg = configure(name, settings, task)
    utils.set_torch_seed(SEED)
    model, criterion = task.build_model(cfg.model).to(settings.device), task.build_criterion(cfg.criterion)
    model.train()
    batch = utils.move_to_cuda(batch) if settings.device == "cuda" else batch

    def passes() -> None:
        model.zero_grad()
        criterion(model, batch)[0].backward()

    return passes


def build_translation(name: str, settings: Settings, task: TranslationTask) -> Callable[[Any], Any]:
    """Makes a function that translates one batch as fairseq-generate does, and returns its hypotheses.

    Every hypothesis is as long as the batch's longest reference, so that all models take the same number of steps: an
    untrained model would continue to the maximum length.
    """
    cfg = configure(name, settings, task)
    utils.set_torch_seed(SEED)
    model = task.build_model(cfg.model)
    model.to(device=settings.device, dtype=PRECISIONS[settings.precision])
    model.prepare_for_inference_(cfg)  # also puts it in evaluation mode
    generator = task.build_generator([model], GenerationConfig(beam=BEAM, max_len_a=0))

    def translate(batch: Any) -> Any:
        generator.min_len = generator.max_len_b = batch["target"].size(1) - 1  # without </s>
        on_device = utils.move_to_cuda(batch) if settings.device == "cuda" else batch
        return task.inference_step(generator, [model], on_device)

    return translate


# --- data ---


def work(name: str, settings: Settings) -> tuple[TranslationTask, dict[str, list[Any]]]:
    """The batches of each round, by the corpus or the length that they are of, and their task."""
    rounds = settings.rounds + 1
    if name in ("training", "generation"):
        corpus, task, pairs = load_corpus(settings.data)
        limits = {"max_tokens": settings.tokens, "required_batch_size_multiple": 8}  # the default of fairseq-train
        if name == "generation":
            limits = {"max_sentences": settings.sentences}
        return task, {corpus: batches_of(task, pairs, rounds, min(settings.tokens, MAX_POSITIONS), **limits)}
    task, batches = random_task(), {}
    for length in settings.lengths:
        pairs = random_pairs(task, [length] * max(1, settings.tokens // length))
        batch = pairs.collater([pairs[number] for number in range(len(pairs))])
        batches[f"n = {length}"] = [batch] * (2 if name in CONSTANT else rounds)
    return task, batches


def load_corpus(data: Path | None) -> tuple[str, TranslationTask, Any]:
    """Loads data of fairseq-preprocess; or makes random sentences, if there is none.

    Returns:
        the name, fairseq's task, and the training set.

    Raises:
        RecipeError: the directory has no training set, or cannot be read.
    """
    if data is None:
        task = random_task()
        generator = torch.Generator().manual_seed(SEED)
        lengths = MEDIAN_LENGTH * torch.exp(LENGTH_SPREAD * torch.randn(SENTENCES, generator=generator))
        pairs = random_pairs(task, lengths.round().clamp(2, LONGEST).long().tolist())
        return "synthetic", task, pairs
    try:
        flags = read("train", (str(data), "--task", "translation", "--arch", "transformer"))
        task = TranslationTask.setup_task(convert_namespace_to_omegaconf(Namespace(**flags)).task)
        task.load_dataset("train")
    except Exception as error:  # fairseq raises plain Exceptions here
        raise RecipeError(
            f"--data {data} cannot be read ({type(error).__name__}: {error}): give a directory that fairseq-preprocess "
            "wrote, with a training set."
        ) from error
    return data.name, task, task.dataset("train")


def batches_of(task: TranslationTask, pairs: Any, count: int, longest: int, **limits: int) -> list[Any]:
    """Batches of pairs as fairseq makes them, without longer sentences; repeats the pairs if there are too few."""
    iterator = task.get_batch_iterator(
        pairs, max_positions=(longest, longest), ignore_invalid_inputs=True, seed=SEED, **limits
    )
    batches: list[Any] = []
    while len(batches) < count:
        epoch = list(iterator.next_epoch_itr(shuffle=True))
        if not epoch:
            raise RecipeError(f"the data has no sentence of up to {longest} tokens: increase --tokens.")
        batches += epoch
    return batches[:count]


def random_task() -> TranslationTask:
    """A translation task with a joint dictionary of random words."""
    dictionary = numbered_dictionary(VOCABULARY)
    return TranslationTask(TranslationConfig(), dictionary, dictionary)


def random_pairs(task: TranslationTask, lengths: list[int]) -> LanguagePairDataset:
    """Random pairs, of which each side has the same length, including </s>.

    Words are uniformly distributed, since the time of a Transformer does not depend on them.
    """
    generator, dictionary = torch.Generator().manual_seed(SEED), task.source_dictionary

    def sentence(length: int) -> torch.Tensor:
        words = torch.randint(dictionary.nspecial, len(dictionary), (length,), generator=generator)
        words[-1] = dictionary.eos()
        return words

    sources, targets = ([sentence(length) for length in lengths] for _ in range(2))
    return LanguagePairDataset(sources, lengths, dictionary, targets, lengths, dictionary)
