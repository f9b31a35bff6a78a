"""`fairseq-posenc benchmark`: speed and memory of position encodings beside stock fairseq's transformer of that size.

fairseq-posenc benchmark training,generation,memory shaw diet_rel --data DATA-BIN -- --encoder-layers 3
"""

import datetime
import itertools
import json
import logging
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # set before torch is imported, or its profiler logs every start
import torch

import fairseq_posenc
from fairseq_posenc.encodings import ENCODINGS
from posenc_experiments.base.files import require_output, write_json
from posenc_experiments.base.hardware import processor
from posenc_experiments.commands.number_types import Count
from posenc_experiments.evaluation.measurements.benchmark import (
    CLOCKS,
    MEASURES,
    PRECISIONS,
    SIZES,
    Result,
    Settings,
    measure,
)
from posenc_experiments.evaluation.tables.report import Table
from posenc_experiments.experiment.versions import environment

#: flags of fairseq-train that this command sets itself
OWN_FLAGS = {"--arch", "--cpu", "--fp16", "--bf16", "--seed", "--max-tokens", "--distributed-world-size"}


class Several(click.ParamType):
    """Values of a type with commas between them, such as ``32,512``."""

    name = "list"

    def __init__(self, one: click.ParamType) -> None:
        self.one = one

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(self.one.convert(part, param, ctx) for part in value.split(",")))


def describe_run(settings: Settings) -> dict[str, Any]:
    """The date, versions, hardware and settings of a run."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
        "versions": {"fairseq_posenc": fairseq_posenc.__version__, **environment()},
        **asdict(settings),
        "device": torch.cuda.get_device_name() if settings.device == "cuda" else processor(),
        "threads": torch.get_num_threads(),
        "data": None if settings.data is None else str(settings.data),
    }


def table(results: Sequence[Result]) -> str:
    """A Markdown table of one measure, with columns for each setting, and the reasons of refusals."""
    columns: dict[str, list[str]] = {"encoding": list(dict.fromkeys(one.encoding for one in results))}
    for one in results:
        columns.setdefault(f"{one.setting}: {one.unit}", []).append(one.median())
        columns.setdefault(f"ratio, {one.setting}", []).append(one.ratio())
    notes = [f"{one.encoding}, {one.setting}, refused: {one.refused}" for one in results if one.refused]
    return Table(columns, notes, results[0].measure).render("markdown")


@click.command()
@click.argument("measures", type=Several(click.Choice(list(MEASURES))), metavar="MEASURE[,MEASURE...]")
@click.argument("encodings", nargs=-1, metavar="[ENCODING[:KEY=VALUE,...]]... [-- FLAGS...]")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Corpus binarized by fairseq-preprocess, for training and generation.  [default: random words, in sentences "
    "about as long as those of news text]",
)
@click.option("--size", type=click.Choice(list(SIZES)), default="base")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto")
@click.option("--precision", type=click.Choice(list(PRECISIONS)), default="fp32")
@click.option("--threads", type=Count(most=1024), help="CPU threads of torch.  [default: torch's own choice]")
@click.option(
    "--rounds",
    type=Count(),
    default=9,
    help="Measured rounds of one batch; one more comes first, to warm up.",
)
@click.option("--tokens", type=Count(8), default=2048, help="Tokens of a batch in each language.")
@click.option(
    "--sentences",
    type=Count(),
    default=32,
    help="Sentences of a batch in generation, which has beam 5.",
)
@click.option(
    "--lengths",
    type=Several(Count(2)),
    default="32,512",
    help="Tokens of a sentence, for time, memory, operations and kernels.",
)
@click.option(
    "--clock",
    type=click.Choice(list(CLOCKS)),
    default="wall",
    help="cpu: CPU seconds of this process, for a machine that others use too.",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Also write all figures to this file.")
def main(
    measures: tuple[str, ...], encodings: tuple[str, ...], threads: int | None, json_file: Path | None, **options: Any
) -> None:
    """Measures the named position encodings, by default all, beside stock fairseq's transformer, and prints Markdown.

    In each round, stock and the encoding do the same work.

    MEASURES: training (words/s of whole updates), generation (sentences/s of cached beam search), time and memory (s
    and peak MiB of an update at each of --lengths), operations (of a forward and a backward pass, views left out, at
    each of --lengths: their number decides the speed of models that are small for their machine), kernels (that an
    update starts on a GPU).

    FLAGS are flags of fairseq-train for every model, stock too; KEY=VALUE is a flag of this package for one encoding.
    """
    logging.disable(logging.INFO)  # fairseq logs each model that is built
    warnings.simplefilter("ignore")  # and hydra warns about it
    names = list(itertools.takewhile(lambda argument: not argument.startswith("-"), encodings))
    if json_file is not None:
        require_output(json_file, "figures.json", "--json")
    if options["device"] == "auto":
        options["device"] = "cuda" if torch.cuda.is_available() else "cpu"
    settings = Settings(flags=encodings[len(names) :], **options)
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError("--device cuda: torch finds no GPU here; give --device cpu.")
    if (settings.device, settings.clock) == ("cuda", "cpu"):
        raise click.UsageError("--clock cpu: CPU time leaves out the work of the GPU; give --clock wall.")
    if settings.device != "cuda" and "kernels" in measures:
        raise click.UsageError("kernels are counted on a GPU only: leave the measure out, or count operations.")
    if own := OWN_FLAGS & {word.partition("=")[0] for word in settings.flags}:
        raise click.UsageError(f"{', '.join(own)} after --: give the options of this command and ENCODINGS instead.")
    if threads is not None:
        torch.set_num_threads(threads)
    run = describe_run(settings)
    click.echo(json.dumps(run, indent=2))
    click.echo("ratio to stock fairseq's transformer: median (quartiles); above 1 is faster, or more s and MiB\n")
    results: list[Result] = []

    def keep(measured: list[Result]) -> None:
        if json_file is not None:
            write_json(json_file, {**run, "results": [asdict(result) for result in [*results, *measured]]})

    for name in measures:
        click.echo(f"measuring {name} ...", err=True)
        measured = measure(name, settings, list(dict.fromkeys(names or ENCODINGS)), keep)
        click.echo(table(measured))
        results += measured
