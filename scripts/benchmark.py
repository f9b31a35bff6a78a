#!/usr/bin/env python
"""Training speed of position encodings against stock fairseq, interleaved in one process on real batches.

Machines drift and are shared, so only ratios within one process count: each round lets every model train on the same
batches, in an order that rotates, and the ratio of its words/s to the baseline's is taken round by round.

    python scripts/benchmark.py DATA-BIN transformer_shaw_iwslt_de_en transformer_diet_rel_iwslt_de_en \\
        -- --encoder-layers 3 --decoder-layers 3 ...

DATA-BIN is binarized by fairseq-preprocess; what follows ``--`` is given to every model as to fairseq-train.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch

if importlib.util.find_spec("fairseq_posenc") is None:  # a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fairseq import options, tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

import fairseq_posenc


def make_trainer(data: str, arch: str, flags: list[str]) -> Trainer:
    """A real fairseq trainer of ``arch``, with its training set loaded."""
    parser = options.get_training_parser()
    arguments = [data, "--arch", arch, "--optimizer", "adam", "--criterion", "label_smoothed_cross_entropy"]
    if not torch.cuda.is_available():
        arguments.append("--cpu")
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [*arguments, *flags]))
    utils.set_torch_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    task.load_dataset("train")
    model = task.build_model(cfg.model)
    return Trainer(cfg, task, model, task.build_criterion(cfg.criterion))


def train_on(trainer: Trainer, batches: list[Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds for one update on each batch."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = clock()
    for batch in batches:
        trainer.train_step([batch])
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return clock() - start


def measure(
    data: str, archs: list[str], flags: list[str], rounds: int, updates: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Target words/s of each architecture in each round; the first, uncounted round warms up."""
    trainers = {arch: make_trainer(data, arch, flags) for arch in archs}
    speeds: dict[str, list[float]] = {arch: [] for arch in archs}
    iterator = trainers[archs[0]].get_train_iterator(epoch=1).next_epoch_itr(shuffle=True)
    for number in range(rounds + 1):
        batches = [next(iterator) for _ in range(updates)]
        words = sum(batch["ntokens"] for batch in batches)
        shift = number % len(archs)
        for arch in archs[shift:] + archs[:shift]:
            seconds = train_on(trainers[arch], batches, clock)
            if number:
                speeds[arch].append(words / seconds)
    return speeds


def summarize(speeds: dict[str, list[float]], baseline: str) -> list[dict[str, Any]]:
    """Median words/s, and the median, lower and upper quartile of the ratio to the baseline."""
    rows = []
    for arch, own in speeds.items():
        ratios = [a / b for a, b in zip(own, speeds[baseline], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        rows.append(
            {"arch": arch, "words_per_second": statistics.median(own), "ratio": middle, "quartiles": [low, high]}
        )
    return rows


@click.command(help=__doc__)
@click.argument("data", type=click.Path(exists=True, file_okay=False))
@click.argument("archs", nargs=-1, required=True)
@click.option("--baseline", default="transformer_iwslt_de_en", show_default=True, help="stock fairseq architecture")
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(min=1))
@click.option("--updates", default=6, show_default=True, type=click.IntRange(min=1), help="of each model in a round")
@click.option("--cpu-time", is_flag=True, help="count the process's CPU seconds, for a machine that others use too")
@click.option("--json", "as_json", is_flag=True, help="print JSON instead of a table")
def main(
    data: str, archs: tuple[str, ...], baseline: str, rounds: int, updates: int, cpu_time: bool, as_json: bool
) -> None:
    names = list(itertools.takewhile(lambda argument: not argument.startswith("-"), archs))
    flags = list(archs[len(names) :])
    logging.disable(logging.INFO)
    clock = time.process_time if cpu_time else time.perf_counter
    rows = summarize(measure(data, [baseline, *names], flags, rounds, updates, clock), baseline)
    if as_json:
        print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "rows": rows}, indent=2))
        return
    print(f"fairseq_posenc {fairseq_posenc.__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{'architecture':45} {'words/s':>9} {'ratio':>6}  quartiles")
    for row in rows:
        low, high = row["quartiles"]
        print(f"{row['arch']:45} {row['words_per_second']:9.0f} {row['ratio']:6.3f}  {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    main()
