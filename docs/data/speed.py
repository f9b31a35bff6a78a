"""The tables of docs/performance.md, from what `fairseq-posenc benchmark --json` wrote (docs/data/benchmarks/)."""

import json
from dataclasses import fields
from pathlib import Path

from fairseq_posenc.benchmark.report import tables
from fairseq_posenc.benchmark.results import Result, quartiles
from fairseq_posenc.benchmark.rounds import STOCK

BENCHMARKS = Path(__file__).resolve().parent / "benchmarks"
#: each column of the table of speed, and the measurement that it is from
SPEED = {"training, newstest": "training-newstest", "generation, Multi30k": "generation-multi30k"}
Rows = tuple[list[str], list[list[str]]]


def results(name: str) -> list[Result]:
    """The results of a measurement."""
    found = json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))["results"]
    return [Result(**{field.name: one[field.name] for field in fields(Result)}) for one in found]


def speed() -> Rows:
    """Each encoding's ratio to stock fairseq, with quartiles over the rounds."""
    columns = [{one.encoding: ratio(one) for one in results(name)} for name in SPEED.values()]
    names = [name for name in dict.fromkeys(name for column in columns for name in column) if name != STOCK]
    return ["encoding", *SPEED], [[f"`{name}`", *(column.get(name, "") for column in columns)] for name in names]


def ratio(result: Result) -> str:
    """The median ratio to stock and its quartiles."""
    low, middle, high = quartiles(result.ratios)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def growth() -> str:
    """Time and memory at each length, as `benchmark growth` printed them."""
    return tables(results("growth")).strip()
