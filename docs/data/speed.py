"""The tables of docs/performance.md, from docs/data/benchmarks/: what `fairseq-posenc benchmark --json` wrote."""

import json
import statistics
from dataclasses import fields
from pathlib import Path

from fairseq_posenc.benchmark.rounds import STOCK, Result
from fairseq_posenc.encodings import ENCODINGS
from posenc_experiments.commands.benchmark import ratio

BENCHMARKS = Path(__file__).resolve().parent / "benchmarks"
#: each column of the table of speed, and its measurement
SPEED = {
    "training, newstest": "training-newstest",
    "training, Multi30k": "training-multi30k",
    "generation, Multi30k": "generation-multi30k",
}
Rows = tuple[list[str], list[list[str]]]


def results(name: str) -> list[Result]:
    """The results of a measurement."""
    found = json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))["results"]
    return [Result(**{field.name: one[field.name] for field in fields(Result)}) for one in found]


def speed() -> Rows:
    """Each encoding's ratio to stock fairseq, with quartiles over the rounds."""
    columns = [{one.encoding: ratio(one) for one in results(name)} for name in SPEED.values()]
    return ["encoding", *SPEED], [[f"`{name}`", *(column[name] for column in columns)] for name in ENCODINGS]


def growth() -> Rows:
    """Time and memory of an update at each length: stock's, and each encoding's as a ratio to it."""
    measured = [*results("growth"), *results("growth-128")]  # the later one has more rounds at n = 128
    found = {(one.measure, one.encoding, one.setting): one for one in measured}
    lengths = list(dict.fromkeys(setting for _, _, setting in found))
    rows = []
    for measure, name in (("growth of time", "time"), ("growth of memory", "memory")):
        for encoding in dict.fromkeys(encoding for _, encoding, _ in found):
            of_length = [found[measure, encoding, length] for length in lengths]
            if encoding == STOCK:
                rows.append([f"{STOCK}: {name}", *(f"{_median(one)} {one.unit}" for one in of_length)])
            else:
                rows.append([f"`{encoding}`: {name}", *(f"{statistics.median(one.ratios):.2f}" for one in of_length)])
    return ["", *lengths], rows


def _median(result: Result) -> str:
    if result.refused:
        return "refused"
    median = statistics.median(result.own)
    return f"{median:,.0f}" if median >= 10 else f"{median:.1f}"
