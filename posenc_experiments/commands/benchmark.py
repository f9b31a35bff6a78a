"""`fairseq-posenc benchmark`: speed and memory of position encodings beside stock fairseq's transformer of that size.

fairseq-posenc benchmark training,generation,memory shaw diet_rel --data DATA-BIN -- --encoder-layers 3
"""

import datetime
import itertools
import logging
import os
import platform
import shlex
import statistics
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import click
from tabulate import tabulate  # type: ignore[import-untyped]

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # set before torch is imported, or its profiler logs every start
import fairseq
import torch

import fairseq_posenc
from fairseq_posenc.benchmark.measures import MEASURES, measure
from fairseq_posenc.benchmark.models import PRECISIONS, SIZES, Settings, candidates
from fairseq_posenc.benchmark.rounds import CLOCKS, STOCK, Result, quartiles
from posenc_experiments.base.markers import require_output, write_json


def parse_lengths(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Parses ``32,512`` to sorted numbers of tokens."""
    if text is None:
        return ()
    parts = text.split(",")
    if not all(part.isdecimal() and len(part) < 10 and int(part) > 1 for part in parts):
        raise click.BadParameter(f"{text!r}: give numbers of tokens, 2 or more, with commas between them: 32,512.")
    return tuple(sorted({int(part) for part in parts}))


def parse_measures(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    """Parses ``training,generation`` to names of measures."""
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in MEASURES:
            known = ", ".join(MEASURES)
            raise click.BadParameter(f"{name!r} is not a measure; name some of {known} with commas between them.")
    return names


def find_device(device: str, precision: str, clock: str) -> str:
    """The device to measure on, cpu or cuda; UsageError if it does not support the precision or the clock."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError("--device cuda: torch finds no GPU here; give --device cpu.")
    if device == "cpu" and precision == "fp16":
        raise click.UsageError(
            "--precision fp16: fairseq cannot train in it on a CPU; give --precision fp32 or bf16, or use a GPU."
        )
    if device == "cuda" and clock == "cpu":
        raise click.UsageError("--clock cpu: CPU time leaves out the work of the GPU; give --clock wall.")
    return device


def describe_run(settings: Settings) -> dict[str, Any]:
    """The date, versions, hardware and settings of a run."""
    try:
        version = f"{metadata.version('ve-fairseq')} (ve-fairseq)"
    except metadata.PackageNotFoundError:
        version = str(fairseq.__version__)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
        "versions": {
            "fairseq_posenc": fairseq_posenc.__version__,
            "fairseq": version,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        **asdict(settings),
        "device": device_name(settings.device),
        "threads": torch.get_num_threads(),
        "data": None if settings.data is None else str(settings.data),
    }


def device_name(device: str) -> str:
    """The name of the GPU, or of the CPU according to Linux."""
    if device == "cuda":
        return str(torch.cuda.get_device_name())
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def heading(run: dict[str, Any]) -> str:
    """Two lines: hardware and versions; settings and the meaning of the figures."""
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    flags = f", {' '.join(run['flags'])}" if run["flags"] else ""
    return (
        f"{run['device']}, {run['threads']} CPU thread(s), {run['precision']}; {versions}; {run['date']}\n"
        f"size {run['size']}{flags}; {run['clock']} time; ratio to stock fairseq's transformer: median (quartiles) of "
        f"{run['rounds']} rounds; above 1 is faster for words/s and sentences/s, below 1 is less for s, ms and MiB\n"
    )


def tables(results: Sequence[Result]) -> str:
    """A Markdown table for each measure, with a column for each setting, and the reasons of refusals."""
    rendered = []
    for name in dict.fromkeys(result.measure for result in results):
        of_measure = [result for result in results if result.measure == name]
        rows: dict[str, list[str]] = {}
        headers = ["encoding"]
        for result in of_measure:
            row = rows.setdefault(result.encoding, [result.encoding])
            row += ["refused"] * 2 if result.refused else [_number(statistics.median(result.own)), ratio(result)]
            if result.encoding == STOCK:
                headers += [f"{result.setting}: {result.unit}", "ratio"]
        alignment = ("left", *["right"] * (len(headers) - 1))
        table = tabulate(rows.values(), headers, tablefmt="pipe", disable_numparse=True, colalign=alignment)
        refused = [f"* {one.encoding}, {one.setting}, refused: {one.refused}" for one in of_measure if one.refused]
        rendered.append("\n".join(["", f"**{name}**", "", table, *([""] if refused else []), *refused, ""]))
    return "".join(rendered)


def ratio(result: Result) -> str:
    """The median ratio to stock and, of several rounds, its quartiles."""
    if result.encoding == STOCK:
        return "1"
    low, middle, high = quartiles(result.ratios)
    spread = f" ({low:.3f} to {high:.3f})" if len(result.ratios) > 1 else ""
    return f"{middle:.3f}{spread}"


def _number(value: float) -> str:
    """Formats a number with four significant digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.4g}"


@click.command()
@click.argument("measures", callback=parse_measures, metavar="MEASURE[,MEASURE...]")
@click.argument("encodings", nargs=-1, metavar="[ENCODING[:KEY=VALUE,...]]... [-- FLAGS...]")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Corpus binarized by fairseq-preprocess, for training and generation.  [default: random words, in sentences "
    "about as long as those of news text]",
)
@click.option("--size", type=click.Choice(list(SIZES)), default="base", show_default=True)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--precision", type=click.Choice(list(PRECISIONS)), default="fp32", show_default=True)
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads of torch.  [default: torch's own choice]")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=9,
    show_default=True,
    help="Measured rounds; one more comes first, to warm up.",
)
@click.option(
    "--updates",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Batches of each model in a round of training.",
)
@click.option(
    "--tokens", type=click.IntRange(min=8), default=2048, show_default=True, help="Tokens of a batch in each language."
)
@click.option(
    "--sentences",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Sentences of a batch in generation, which translates one batch in each round, with beam 5.",
)
@click.option(
    "--lengths",
    callback=parse_lengths,
    help="Tokens of a sentence.  [default: memory 32,512; growth 128,256,...,2048]",
)
@click.option(
    "--group", type=click.IntRange(min=1), default=6, show_default=True, help="Models in memory at once, beside stock."
)
@click.option(
    "--clock",
    type=click.Choice(list(CLOCKS)),
    default="wall",
    show_default=True,
    help="cpu: CPU seconds of this process, for a machine that others use too.",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Also write all figures to this file.")
def main(
    measures: list[str], encodings: tuple[str, ...], threads: int | None, json_file: Path | None, **options: Any
) -> None:
    """Measures the named position encodings, by default all, beside stock fairseq's transformer, and prints Markdown.

    In each round, every model does the same work.

    MEASURES: training (words/s of whole updates), generation (sentences/s of cached beam search), memory (peak in
    training), growth (time and memory with the length).

    FLAGS are flags of fairseq-train for every model, stock too; KEY=VALUE is a flag of this package for one encoding.
    """
    logging.disable(logging.INFO)  # fairseq logs each model that is built
    warnings.simplefilter("ignore")  # and hydra warns about it
    names = list(itertools.takewhile(lambda argument: not argument.startswith("-"), encodings))
    if json_file is not None:
        require_output(json_file, "figures.json", "--json")
    options["device"] = find_device(options["device"], options["precision"], options["clock"])
    settings = Settings(flags=encodings[len(names) :], **options)
    models = candidates(names)
    if threads is not None:
        torch.set_num_threads(threads)
    run = describe_run(settings)
    click.echo(heading(run))
    results: list[Result] = []
    for name in measures:
        click.echo(f"measuring {name} ...", err=True)
        found = measure(name, settings, models)
        click.echo(tables(found))
        results += found
        if json_file is not None:  # after each measure, because a later one may be interrupted
            write_json(json_file, {**run, "results": [result.as_dict() for result in results]})
