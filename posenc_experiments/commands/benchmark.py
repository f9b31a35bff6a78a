"""`fairseq-posenc benchmark`: speed and memory of position encodings beside stock fairseq's transformer of that size.

fairseq-posenc benchmark training,generation,memory shaw diet_rel --data DATA-BIN -- --encoder-layers 3
"""

import itertools
import logging
import os
import shlex
import sys
import warnings
from pathlib import Path

import click

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # set before torch is imported, or its profiler logs every start
import torch

from fairseq_posenc.benchmark import models, report, run
from fairseq_posenc.benchmark.results import Result
from fairseq_posenc.benchmark.rounds import CLOCKS, Clock
from posenc_experiments.base.markers import require_output, write_json


def parse_lengths(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """Parses ``32,512`` to sorted numbers of tokens."""
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.isdecimal() and len(part) < 10 and int(part) > 1 for part in parts):
        raise click.BadParameter(f"{text!r}: give numbers of tokens, 2 or more, with commas between them: 32,512.")
    return tuple(sorted({int(part) for part in parts}))


def parse_measures(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    """Parses ``training,generation`` to names of measures."""
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in run.MEASURES:
            known = ", ".join(run.MEASURES)
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


@click.command()
@click.argument("measures", callback=parse_measures, metavar="MEASURE[,MEASURE...]")
@click.argument("encodings", nargs=-1, metavar="[ENCODING[:KEY=VALUE,...]]... [-- FLAGS...]")
@click.option(
    "--data",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Corpus binarized by fairseq-preprocess, for training, forward and generation; may be repeated.  [default: "
    "random words, in sentences about as long as those of news text]",
)
@click.option("--size", type=click.Choice(list(models.SIZES)), default="base", show_default=True)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--precision", type=click.Choice(list(models.PRECISIONS)), default="fp32", show_default=True)
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
    help="Batches of each model in a round of training or forward.",
)
@click.option(
    "--tokens", type=click.IntRange(min=8), default=2048, show_default=True, help="Tokens of a batch in each language."
)
@click.option(
    "--sentences",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Sentences of a batch in generation, which translates one batch in each round.",
)
@click.option("--beam", type=click.IntRange(min=1), default=5, show_default=True)
@click.option(
    "--lengths",
    callback=parse_lengths,
    help="Tokens of a sentence.  [default: memory 32,512; growth 128,256,...,2048; attention and "
    "attention-forward 128,256,...,1024]",
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
@click.option(
    "--vocabulary", type=click.IntRange(min=16), default=8000, show_default=True, help="Words of random sentences."
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    help="Also write all figures to this file.",
)
def main(
    measures: list[str],
    encodings: tuple[str, ...],
    data: tuple[Path, ...],
    size: str,
    device: str,
    precision: str,
    threads: int | None,
    rounds: int,
    updates: int,
    tokens: int,
    sentences: int,
    beam: int,
    lengths: tuple[int, ...] | None,
    group: int,
    clock: str,
    vocabulary: int,
    seed: int,
    json_file: Path | None,
) -> None:
    """Measures the named position encodings, by default all, beside stock fairseq's transformer, and prints Markdown.

    In each round, every model does the same work.

    MEASURES: training (words/s of whole updates), forward (words/s without gradients), generation (sentences/s of
    cached beam search), memory (peak in training), growth (time and memory with the length), attention (alone, beside
    torch's scaled_dot_product_attention), attention-forward (the same without gradients).

    FLAGS are flags of fairseq-train for every model; stock does not get those that only this package has.
    """
    logging.disable(logging.INFO)  # fairseq logs each model that is built
    warnings.simplefilter("ignore")  # and hydra warns about it
    names = list(itertools.takewhile(lambda argument: not argument.startswith("-"), encodings))
    flags = encodings[len(names) :]
    if json_file is not None:
        require_output(json_file, "figures.json", "--json")
    data = tuple(dict.fromkeys(data))
    device = find_device(device, precision, clock)
    if threads is not None:
        torch.set_num_threads(threads)
    models.check_flags(flags)
    plan = run.Plan(
        models.Setup(size, device, precision, seed, flags),
        models.candidates(names),
        Clock(clock, device),
        data,
        rounds=rounds,
        updates=updates,
        tokens=tokens,
        sentences=sentences,
        beam=beam,
        lengths=lengths,
        group=group,
        vocabulary=vocabulary,
    )
    settings = {"clock": clock, "rounds": rounds, "updates": updates, "tokens": tokens, "sentences": sentences}
    settings |= {"beam": beam, "lengths": lengths, "group": group, "vocabulary": vocabulary}
    settings |= {"data": list(map(str, data))}
    described = report.describe_run(plan.setup, settings, shlex.join(sys.argv))
    click.echo(report.heading(described))
    results: list[Result] = []
    for measure in measures:
        click.echo(f"measuring {measure} ...", err=True)
        found = run.MEASURES[measure](plan)
        click.echo(report.tables(found))
        results += found
        if json_file is not None:  # after each measure, because a later one may be interrupted
            write_json(json_file, report.as_json(described, results))
