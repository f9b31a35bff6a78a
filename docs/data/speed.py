"""The tables of docs/performance.md, from what `fairseq-posenc benchmark --json` wrote (docs/data/benchmarks/)."""

import json
import statistics
from dataclasses import fields
from pathlib import Path

from fairseq_posenc.benchmark.report import ratio, tables
from fairseq_posenc.benchmark.results import Result
from fairseq_posenc.benchmark.rounds import STOCK

BENCHMARKS = Path(__file__).resolve().parent / "benchmarks"
#: each column of the table of speed, and the measurement that it is from
SPEED = {"training, newstest": "training-newstest", "generation, Multi30k": "generation-multi30k"}
EAGER, FLEX = "attention_backend=eager", "attention_backend=flex"
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


def growth() -> str:
    """Time and memory at each length, as `benchmark growth` printed them."""
    return tables(results("growth")).strip()


def compiled() -> Rows:
    """Milliseconds and MiB of attention without gradients, by all logits at once and by compiled FlexAttention."""
    found = {(one.measure, one.setting, one.encoding): one for one in results("attention-forward")}
    names = dict.fromkeys(name.removesuffix(FLEX) for _, _, name in found if name.endswith(FLEX))
    places = dict.fromkeys((measure, length) for measure, length, _ in found)
    headers = [
        f"{found[measure, length, STOCK].unit}, {length}: {backend}"
        for measure, length in places
        for backend in ("eager", "flex")
    ]
    rows = []
    for name in names:
        pairs = ((found[*place, name + EAGER], found[*place, name + FLEX]) for place in places)
        rows.append([f"`{name.rstrip(':,')}`", *(_median(one) for pair in pairs for one in pair)])
    return ["encoding", *headers], rows


def _median(result: Result) -> str:
    return "refused" if result.refused else f"{statistics.median(result.own):,.0f}"
